//! Jobs in shell: their READMEs' lines, on hosts that share a store.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use leasehold_testkit::servers::{Postgres, Redis, RedisEdition, ServerClock};

use crate::common::{Done, Host, done, eventually};
use crate::{example, host, job};

const NIGHTLY: &str =
    "leasehold run reports/nightly --once-per 12h --wait 1h -- ./report.sh reports";
const REMINDERS: &str = "leasehold run reminders --if-busy skip -- ./remind.sh due ./send.sh";

/// The test on the default store, and on a server.
fn on_each(test: impl Fn(&Host)) {
    test(&host(Host::new()));
    let redis = Redis::start(RedisEdition::Valkey8).unwrap();
    test(&host(Host::on(redis.url())));
    let postgres = Postgres::start().unwrap();
    test(&host(Host::on(postgres.url())));
}

fn line(host: &Host, line: &str) -> Command {
    let mut command = job(host, "sh", &["-c", &format!("exec {line}")]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn copy(host: &Host, from: &str, name: &str) {
    fs::copy(example(from).join(name), host.path().join(name)).unwrap();
}

fn script(host: &Host, name: &str, text: &str) {
    let path = host.file(name, text);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn read(host: &Host, name: &str) -> String {
    fs::read_to_string(host.path().join(name)).unwrap_or_default()
}

fn ended(child: Child) -> Done {
    child.wait_with_output().unwrap().into()
}

#[test]
fn a_nightly_report_has_one_line_in_cron_systemd_kubernetes_and_its_readme() {
    for name in [
        "README.md",
        "crontab",
        "nightly-report.service",
        "cronjob.yaml",
    ] {
        let text = fs::read_to_string(example("nightly-report").join(name)).unwrap();
        let lines = text.lines().filter(|line| line.ends_with(NIGHTLY));
        assert_eq!(lines.count(), 1, "{name}");
    }
}

#[test]
fn of_three_hosts_whose_clocks_differ_one_makes_the_report_and_without_the_lock_three_do() {
    on_each(|host| {
        copy(host, "nightly-report", "report.sh");
        // Who makes a report says so.
        script(
            host,
            "counted.sh",
            "#!/bin/sh\necho made >> made\nexec ./report.sh \"$@\"\n",
        );
        let counted = NIGHTLY.replace("./report.sh", "./counted.sh");
        let (_, bare) = counted.split_once("-- ").unwrap();
        let clocks = [0, 3, -3].map(|hours| {
            // The store on one host is that host's, with its clock.
            let hours = if host.store().starts_with("sqlite:") {
                0
            } else {
                hours
            };
            let clock = ServerClock::new().unwrap();
            clock.set(hours * 3600, 0).unwrap();
            clock
        });
        let night = |text: &str| {
            let hosts = clocks.each_ref().map(|clock| {
                let mut command = line(host, text);
                clock.lend(&mut command);
                command.spawn().unwrap()
            });
            hosts.map(|child| ended(child).is(0))
        };
        let said = night(&counted);
        assert_eq!(read(host, "made"), "made\n");
        let skipped = said
            .iter()
            .filter(|done| done.err.contains("has succeeded"));
        assert_eq!(skipped.count(), 2);
        assert!(read(host, "reports/report.txt").starts_with("The report of "));
        night(bare);
        assert_eq!(read(host, "made").lines().count(), 4);
    });
}

#[test]
fn a_report_whose_host_dies_is_made_by_the_next_one() {
    on_each(|host| {
        script(
            host,
            "report.sh",
            "#!/bin/sh\necho begun >> begun\nexec sleep 60\n",
        );
        let nightly = NIGHTLY.replace("--wait 1h", "--wait 1h --ttl 3s");
        let mut dies = line(host, &nightly).spawn().unwrap();
        eventually(|| read(host, "begun") == "begun\n");
        copy(host, "nightly-report", "report.sh");
        let next = line(host, &nightly).spawn().unwrap();
        sleep(Duration::from_millis(500));
        dies.kill().unwrap();
        dies.wait().unwrap();
        let next = ended(next).is(0);
        assert!(!next.err.contains("has succeeded"), "{}", next.err);
        assert!(read(host, "reports/report.txt").starts_with("The report of "));
        done(&mut line(host, &nightly)).is(0).says("has succeeded");
    });
}

#[test]
fn reminders_go_on_where_a_run_was_killed_and_without_records_are_sent_again() {
    let readme = fs::read_to_string(example("invoice-reminders").join("README.md")).unwrap();
    assert!(readme.lines().any(|line| line == REMINDERS));
    on_each(|host| {
        copy(host, "invoice-reminders", "remind.sh");
        for number in 1..=4 {
            host.file(&format!("due/{number}"), "");
        }
        // The third one takes longer than the lock's TTL.
        let slow = "#!/bin/sh\ncase $1 in */3) touch slow; until [ -e go ]; do sleep 0.05; done; esac\n\
            echo \"reminder of $(basename \"$1\")\" >> sent\n";
        script(host, "send.sh", slow);
        host.file(".config/leasehold/config.toml", "ttl = \"3s\"\n");
        let mut dies = line(host, REMINDERS).spawn().unwrap();
        eventually(|| host.path().join("slow").exists());
        sleep(Duration::from_secs(4));
        done(&mut line(host, REMINDERS)).is(0).says("reminders");
        assert_eq!(read(host, "sent"), "reminder of 1\nreminder of 2\n");
        dies.kill().unwrap();
        dies.wait().unwrap();

        copy(host, "invoice-reminders", "send.sh");
        let waits = REMINDERS.replace("--if-busy skip", "--wait 1m");
        done(&mut line(host, &waits)).is(0);
        let once = "reminder of 1\nreminder of 2\nreminder of 3\nreminder of 4\n";
        assert_eq!(read(host, "sent"), once);
        // As it is written, an hour later.
        done(&mut line(host, REMINDERS)).is(0).says("has succeeded");
        assert_eq!(read(host, "sent"), once);
        // Who keeps no record of what was sent begins again.
        done(&mut job(
            host,
            "sh",
            &["-c", "for invoice in due/*; do ./send.sh $invoice; done"],
        ))
        .is(0);
        assert_eq!(read(host, "sent").lines().count(), 8);
    });
}
