//! `leasehold extend` and `leasehold release`: a lock that `acquire` took, in the hands of another process.

use std::fs::File;
use std::io;
use std::path::Path;

use leasehold::{Error, ErrorKind, Name, Owner};

use super::{Context, env};
use crate::args::{self, Extend};
use crate::config::variable;
use crate::duration;
use crate::exit::{Failure, UNAVAILABLE};
use crate::printer::{Event, Level};
use crate::store::{Store, read_secret, unread};

const NAME: &str = "LEASEHOLD_NAME";
const OWNER: &str = "LEASEHOLD_OWNER";

/// Which hold is meant, and what it takes to change it.
struct Hold {
    name: String,
    owner: Owner,
}

pub(crate) async fn extend(args: Extend, context: &Context) -> Result<u8, Failure> {
    let Hold { name, owner } = Hold::read(args.hold)?;
    let store = context.connect().await?;
    // Asked again it does the same again.
    let extend = async || {
        let mut resumed = store.client.resume(&name, owner).await?;
        resumed.extend(args.ttl).await
    };
    context.first(&store, "extend", Some(&name), extend).await?;
    store.client.close().await;
    let ttl = duration::exact(args.ttl);
    let text = format!("extended \"{name}\" to {ttl} from now");
    tell(context, &store, "extended", &name, &text);
    Ok(0)
}

pub(crate) async fn release(args: args::Release, context: &Context) -> Result<u8, Failure> {
    let Hold { name, owner } = Hold::read(args.hold)?;
    let store = context.connect().await?;
    // Asked once: after an answer that got lost, asking again would find it gone.
    let release = async {
        let mut resumed = store.client.resume(&name, owner).await?;
        resumed.release().await
    };
    let released = context.once(&store, "release", &name, release).await;
    store.client.close().await;
    let released = released.map_err(|mut failure| {
        if failure.code == UNAVAILABLE {
            let unconfirmed = "; not confirmed, the lock is free after its TTL at the latest";
            failure.message.push_str(unconfirmed);
        }
        failure
    })?;
    let why = match released {
        leasehold::Release::Freed => {
            let text = format!("released \"{name}\"");
            tell(context, &store, "released", &name, &text);
            return Ok(0);
        }
        leasehold::Release::Expired => {
            "it had ended before, by its time or because it was deleted, and nobody has it"
        }
        leasehold::Release::Broken => "an operator had taken it away, and nobody has it",
        leasehold::Release::Another => "it had ended before, and somebody else has it",
    };
    let lost = Failure::from(Error::new(ErrorKind::Lost, why));
    Err(lost.during("release").named(&name).on(&store.shown))
}

fn tell(context: &Context, store: &Store, event: &'static str, name: &str, text: &str) {
    let event = Event::new(Level::Info, event, name, &store.shown, None, text);
    context.printer.detail(&event);
}

impl Hold {
    fn read(args: args::Hold) -> Result<Self, Failure> {
        let name = match args.name {
            Some(name) => name,
            None => variable(&env, NAME)?
                .ok_or_else(|| {
                    Failure::usage(format!(
                        "which lock? give its name, or set {NAME} by evaluating what acquire printed"
                    ))
                })?
                .value,
        };
        Name::new(&name)?;
        let owner = match args.owner_file {
            Some(file) => read_owner(&file).map_err(|fault| {
                Failure::config(format!("the owner file {}: {fault}", file.display()))
            })?,
            None => {
                let set = variable(&env, OWNER)?.ok_or_else(|| {
                    Failure::usage(format!(
                        "whose lock? set {OWNER} by evaluating what acquire printed, or give --owner-file"
                    ))
                })?;
                parse(&set.value).map_err(|fault| Failure::config(format!("{OWNER} {fault}")))?
            }
        };
        Ok(Self { name, owner })
    }
}

fn read_owner(file: &Path) -> Result<Owner, String> {
    let text = if file == Path::new("-") {
        read_secret(io::stdin().lock())
    } else {
        File::open(file).map_err(unread).and_then(read_secret)
    };
    text.and_then(|text| parse(&text))
}

/// The fault repeats nothing of the text, which is a secret.
fn parse(text: &str) -> Result<Owner, String> {
    text.parse()
        .map_err(|error: Error| format!("is {}", error.message()))
}
