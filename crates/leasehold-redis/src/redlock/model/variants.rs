//! The variants that must hold, and those that must be found wrong.

use stateright::{Checker, HasDiscoveries, Model};

use super::{Amnesia, Fault, RISING, STRICT, Setting, UNIQUE};

/// Looks at every state there is. Depth first: so few states wait to be looked at that memory holds the largest setting.
fn assert_holds(setting: Setting) {
    let checker = setting.checker().spawn_dfs().join();
    checker.assert_properties();
    assert!(checker.is_done());
}

/// Looks until the fault shows.
fn assert_found(setting: Setting, property: &'static str) {
    let wanted = HasDiscoveries::AnyOf([property].into());
    let checker = setting.checker().finish_when(wanted).spawn_bfs().join();
    let found = checker.discovery(property);
    assert!(found.is_some(), "the fault was not found");
}

#[test]
fn the_protocol_holds() {
    assert_holds(STRICT);
}

#[test]
fn the_highest_counter_alone_is_found_wrong() {
    let setting = Setting {
        fault: Fault::HighestAlone,
        ..STRICT
    };
    assert_found(setting.clone(), UNIQUE);
    // A try that failed raises one count alone.
    let with_a_failed_try = Setting {
        acquisitions: 3,
        ..setting
    };
    assert_found(with_a_failed_try, RISING);
}

#[test]
fn a_token_before_the_majority_has_it_is_found_wrong() {
    let setting = Setting {
        fault: Fault::BeforeTheMajority,
        ..STRICT
    };
    assert_found(setting.clone(), UNIQUE);
    assert_found(setting, RISING);
}

#[test]
fn a_write_back_that_is_not_strict_is_found_wrong_with_duplicates() {
    let setting = Setting {
        duplicates: 1,
        fault: Fault::NotStrict,
        ..STRICT
    };
    assert_found(setting, UNIQUE);
}

#[test]
fn a_node_that_forgot_and_counts_at_once_is_found_wrong() {
    let setting = Setting {
        amnesia: Amnesia::CountedAtOnce,
        ..STRICT
    };
    assert_found(setting.clone(), UNIQUE);
    assert_found(setting, RISING);
}

#[test]
fn a_node_that_forgot_and_counts_once_seeded_is_found_wrong() {
    let setting = Setting {
        amnesia: Amnesia::CountedOnceSeeded,
        ..STRICT
    };
    assert_found(setting, UNIQUE);
}

#[test]
fn a_node_that_forgot_and_counts_once_all_is_over_holds() {
    assert_holds(Setting {
        amnesia: Amnesia::CountedOnceAllIsOver,
        ..STRICT
    });
}

#[test]
fn the_protocol_holds_with_duplicates_on_one_node() {
    assert_holds(Setting {
        duplicates: 1,
        ..STRICT
    });
}

#[cfg(feature = "full-model")]
#[test]
fn the_protocol_holds_with_duplicates() {
    assert_holds(Setting {
        duplicates: super::NODES,
        ..STRICT
    });
}

#[test]
fn the_protocol_holds_with_three_acquisitions() {
    assert_holds(Setting {
        acquisitions: 3,
        ..STRICT
    });
}
