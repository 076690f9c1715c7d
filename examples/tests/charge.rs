use std::process::Command;

use crate::shop::{Shop, at_once, out};

const TABLES: &str = "CREATE TABLE charges (customer TEXT, cents BIGINT)";
const CHARGED: &str = "SELECT count(*) FROM charges";

fn line(shop: &Shop) -> Command {
    shop.line("charge", env!("CARGO_BIN_EXE_charge"))
}

#[test]
fn requests_that_come_again_and_at_once_are_charged_once_and_get_one_receipt() {
    for shop in Shop::each(TABLES) {
        let receipts: Vec<String> = at_once(10, || line(&shop)).iter().map(out).collect();
        let later = out(&line(&shop).output().unwrap());
        assert!(later.starts_with("receipt charge/4711/990/"), "{later}");
        assert!(
            receipts.iter().all(|receipt| *receipt == later),
            "{receipts:?}"
        );
        assert_eq!(shop.number(CHARGED), 1);
    }
}

#[test]
fn a_charge_that_was_killed_is_undone_and_made_by_the_repeat() {
    for shop in Shop::each(TABLES) {
        shop.kill_in_transaction("charges", &mut line(&shop));
        assert_eq!(shop.number(CHARGED), 0);
        out(&line(&shop).output().unwrap());
        assert_eq!(shop.number(CHARGED), 1);
    }
}

#[test]
fn a_time_that_is_not_the_requests_makes_another_request_of_each_try() {
    for shop in Shop::each(TABLES) {
        for time in ["2026-11-30T02:00:00Z", "2026-11-30T02:00:01Z"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_charge"));
            let url = shop.url();
            out(&command.args([&url, "4711", "990", time]).output().unwrap());
        }
        assert_eq!(shop.number(CHARGED), 2);
    }
}

#[test]
fn a_customer_whose_number_could_be_read_as_more_is_refused() {
    for shop in Shop::each(TABLES) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_charge"));
        let refused = command.args([&shop.url(), "4711/990", "1", "2026-11-30T02:00:00Z"]);
        let refused = refused.output().unwrap();
        assert!(!refused.status.success());
        assert_eq!(shop.number(CHARGED), 0);
    }
}
