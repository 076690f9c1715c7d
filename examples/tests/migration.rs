use std::process::Command;

use crate::shop::{Shop, at_once, out};

const TABLES: &str = "CREATE TABLE prices (item TEXT, price BIGINT); \
    INSERT INTO prices VALUES ('tea', 3)";
const PRICE: &str = "SELECT price FROM prices";

fn line(shop: &Shop) -> Command {
    shop.line("migration", env!("CARGO_BIN_EXE_migration"))
}

#[test]
fn of_instances_that_start_at_once_one_migrates() {
    for shop in Shop::each(TABLES) {
        let mut said: Vec<String> = at_once(10, || line(&shop)).iter().map(out).collect();
        said.sort();
        assert_eq!(
            (said[0].as_str(), said[1].as_str()),
            ("migrated", "nothing to do")
        );
        assert_eq!(said.iter().filter(|said| *said == "migrated").count(), 1);
        assert_eq!(shop.number(PRICE), 300);
    }
}

#[test]
fn a_migration_that_was_killed_has_changed_nothing_and_is_made_by_the_next() {
    for shop in Shop::each(TABLES) {
        shop.kill_in_transaction("prices", &mut line(&shop));
        assert_eq!(shop.number(PRICE), 3);
        assert_eq!(out(&line(&shop).output().unwrap()), "migrated");
        assert_eq!(shop.number(PRICE), 300);
        // What the record is for.
        shop.change("DELETE FROM leasehold_once");
        assert_eq!(out(&line(&shop).output().unwrap()), "migrated");
        assert_eq!(shop.number(PRICE), 30_000);
    }
}
