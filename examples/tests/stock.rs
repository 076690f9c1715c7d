use std::process::Command;

use crate::shop::{Shop, at_once, out};

const TABLES: &str = "CREATE TABLE stock (item TEXT PRIMARY KEY, count BIGINT); \
    INSERT INTO stock VALUES ('tea', 10)";
const LEFT: &str = "SELECT count FROM stock WHERE item = 'tea'";

fn line(shop: &Shop) -> Command {
    shop.line("stock", env!("CARGO_BIN_EXE_stock"))
}

#[test]
fn under_load_no_more_is_sold_than_there_is() {
    for shop in Shop::each(TABLES) {
        // Three pieces each: three of them get some, and one piece is left.
        let ended = at_once(12, || line(&shop));
        let mut sold: Vec<String> = ended
            .iter()
            .filter(|output| output.status.success())
            .map(out)
            .collect();
        sold.sort();
        assert_eq!(sold, ["1 left", "4 left", "7 left"]);
        for output in ended.iter().filter(|output| !output.status.success()) {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("only 1 left"), "{said}");
        }
        assert_eq!(shop.number(LEFT), 1);
    }
}

#[test]
fn who_is_overtaken_changes_nothing_and_without_a_fence_sells_what_is_not_there() {
    for shop in Shop::each(TABLES) {
        out(&line(&shop).output().unwrap());
        // Read by one that is then frozen past its time; the next one sells all that is left.
        let read = shop.number(LEFT);
        shop.change("UPDATE stock SET count = 0");
        let write = format!("UPDATE stock SET count = {} WHERE item = 'tea'", read - 3);
        shop.change(&write);
        assert_eq!(shop.number(LEFT), 4, "four pieces are sold twice");

        // The example's, when a newer holder has been there.
        shop.change("UPDATE leasehold_fence SET token = token + 1000000");
        let refused = line(&shop).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1));
        assert!(said.contains("has been seen"), "{said}");
        assert_eq!(shop.number(LEFT), 4);
    }
}
