//! `leasehold fence`: the resource's side of a lock, for what isn't a program that links the library.

mod place;

use std::io::Read as _;
use std::path::Path;

use leasehold::{Name, Token};
use leasehold_fence::file::FencedFile;
use leasehold_fence::{Checked, Key, Mark, Pass, Seen, Stale};
use serde::Serialize;

use self::place::Place;
use super::Context;
use crate::args::{Fence, FenceAdvance, FenceCheck, FenceSign, FenceWrite, Offered, Resource};
use crate::exit::{Failure, LOST};
use crate::printer::SCHEMA;
use crate::show::clean;
use crate::usage::is_path;

/// The most that standard input may be: it is held in memory.
const CONTENTS_MAX: u64 = 1 << 30;

pub(crate) async fn fence(asked: Fence, context: &Context) -> Result<u8, Failure> {
    match asked {
        Fence::Check(args) => check(&args, context).await,
        Fence::Write(args) => write(&args, context),
        Fence::Show(args) => show(&args, context).await,
        Fence::Advance(args) => advance(&args, context).await,
        Fence::Sign(args) => sign(&args, context),
    }
}

async fn check(args: &FenceCheck, context: &Context) -> Result<u8, Failure> {
    let FenceCheck { resource, offered } = args;
    let mark = offered.mark(Some(resource))?;
    let mut place = Place::of(context, resource).await?;
    let checked = place.check(context, mark).await?;
    tell(context, resource, &place.shown, checked, mark)
}

fn write(args: &FenceWrite, context: &Context) -> Result<u8, Failure> {
    let shown = args.file.display().to_string();
    // To the others it is the name of a resource, which has another mark.
    if !is_path(&shown) {
        let what = format!("a file begins with /, ./ or ../ here as elsewhere: ./{shown}");
        return Err(Failure::usage(what));
    }
    let mark = args.offered.mark(None)?;
    let file = FencedFile::at(&args.file)?;
    // First, so that a stale writer is told at once and needn't make what nobody takes.
    let checked = match file.check(mark)? {
        Checked::Accepted => file.replace(mark, &contents()?)?,
        stale @ Checked::Stale(_) => stale,
    };
    tell(context, &shown, &shown, checked, mark)
}

async fn show(args: &Resource, context: &Context) -> Result<u8, Failure> {
    let mut place = Place::of(context, &args.resource).await?;
    let seen = place.seen(context).await?;
    let told = FenceJson::new(&args.resource, &place.shown, None, seen, None);
    told.print(context, &format!("has seen {seen}"))?;
    Ok(0)
}

async fn advance(args: &FenceAdvance, context: &Context) -> Result<u8, Failure> {
    let FenceAdvance { resource, epoch } = args;
    let mut place = Place::of(context, resource).await?;
    let seen = place.advance(context, *epoch).await?;
    let (outcome, text, code) = if seen.epoch() > *epoch {
        let text =
            format!("not advanced to epoch {epoch}; it has seen {seen}, and epochs don't go back");
        ("behind", text, LOST)
    } else {
        let text = format!(
            "in epoch {epoch}, having seen {seen}; tokens of older epochs are stale, so offer new ones with --epoch {epoch}"
        );
        ("advanced", text, 0)
    };
    FenceJson::new(resource, &place.shown, Some(outcome), seen, None).print(context, &text)?;
    Ok(code)
}

fn sign(args: &FenceSign, context: &Context) -> Result<u8, Failure> {
    let pass = Pass::new(Name::new(&args.name)?, args.token.parse()?);
    let signed = key(&args.key_file)?.sign(&pass);
    context
        .printer
        .hand_over(&format!("{signed}\n"))
        .map(|()| 0)
}

/// Says what came of an offered mark; answers the exit code.
fn tell(
    context: &Context,
    resource: &str,
    at: &str,
    checked: Checked,
    mark: Mark,
) -> Result<u8, Failure> {
    let (outcome, seen, text, code) = match checked {
        Checked::Accepted => (
            "accepted",
            mark.into(),
            format!("accepted; {mark} is the newest it has seen"),
            0,
        ),
        Checked::Stale(Stale { seen, yours }) => (
            "stale",
            seen,
            format!("stale; it has seen {seen}, and yours is {yours}"),
            LOST,
        ),
    };
    FenceJson::new(resource, at, Some(outcome), seen, Some(mark)).print(context, &text)?;
    Ok(code)
}

impl Offered {
    /// The mark: of the lock that was named, or else of the resource's name, where a name comes with it.
    fn mark(&self, resource: Option<&str>) -> Result<Mark, Failure> {
        let named = self
            .lock
            .as_deref()
            .or(resource.filter(|resource| !is_path(resource)));
        let of = |pass: Pass| match named {
            Some(lock) => Ok(pass.of(&Name::new(lock)?)?),
            None => Err(Failure::usage(
                "the token comes with a lock's name; say with --lock whose tokens the file takes",
            )),
        };
        if let Some(path) = &self.key_file {
            return of(key(path)?.verify(&self.token)?);
        }
        let mark = match self.token.contains(':') {
            true => of(self.token.parse()?)?,
            false => self.token.parse()?,
        };
        match self.epoch {
            None => Ok(mark),
            Some(epoch) if mark.epoch() == 0 || mark.epoch() == epoch => {
                Ok(Mark::new(epoch, mark.token()))
            }
            Some(epoch) => {
                let what = format!("the token {mark} is of another epoch than --epoch {epoch}");
                Err(Failure::usage(what))
            }
        }
    }
}

/// A key that can't be used is a matter of configuration.
fn key(path: &Path) -> Result<Key, Failure> {
    Key::from_file(path).map_err(|error| Failure::config(error.to_string()))
}

fn contents() -> Result<Vec<u8>, Failure> {
    let mut contents = Vec::new();
    let read = std::io::stdin()
        .lock()
        .take(CONTENTS_MAX + 1)
        .read_to_end(&mut contents);
    read.map_err(|error| {
        Failure::internal(format!(
            "stdin can't be read: {error}; the file is as it was"
        ))
    })?;
    if contents.len() as u64 > CONTENTS_MAX {
        return Err(Failure::usage(
            "stdin has more than 1 GiB, which is the most for a file; the file is as it was",
        ));
    }
    Ok(contents)
}

#[derive(Serialize)]
struct FenceJson<'a> {
    schema: u8,
    resource: &'a str,
    store: &'a str,
    outcome: Option<&'static str>,
    seen: MarkJson,
    yours: Option<MarkJson>,
}

#[derive(Serialize)]
struct MarkJson {
    epoch: u32,
    token: Option<String>,
}

impl From<Seen> for MarkJson {
    fn from(seen: Seen) -> Self {
        Self {
            epoch: seen.epoch(),
            token: seen.token().as_ref().map(Token::to_string),
        }
    }
}

impl<'a> FenceJson<'a> {
    fn new(
        resource: &'a str,
        store: &'a str,
        outcome: Option<&'static str>,
        seen: Seen,
        yours: Option<Mark>,
    ) -> Self {
        Self {
            schema: SCHEMA,
            resource,
            store,
            outcome,
            seen: seen.into(),
            yours: yours.map(|mark| Seen::from(mark).into()),
        }
    }

    /// Prints it, or the text for people.
    fn print(&self, context: &Context, text: &str) -> Result<(), Failure> {
        if context.printer.json {
            return context.printer.out_json(self);
        }
        let Self {
            resource, store, ..
        } = self;
        // A file is its own store.
        let at = if resource == store {
            String::new()
        } else {
            format!(", at {store}")
        };
        context
            .printer
            .out(&format!("{}\n", clean(&format!("{resource}: {text}{at}"))))
    }
}
