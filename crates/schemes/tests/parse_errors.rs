//! Every error has a position and a correction; a bad file returns no scheme.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use thermo_schemes::parse;

fn refused(name: &str, text: &str, line: usize, column: usize, message: &str) {
    let error = parse(name, text).expect_err(text);
    assert!(error.message.contains(message), "{text}\n{error}");
    assert_eq!((error.line, error.column), (line, column), "{text}\n{error}");
}

#[test]
fn line_errors_have_position_and_correction() {
    let good = "4K max 0 0 5s max pageout\n";
    for (text, line, column, message) in [
        ("", 1, 1, "no scheme in this file"),
        ("# words\n\n", 1, 1, "no scheme in this file"),
        ("4K max 0 0 5s max", 1, 18, "6 of 7 fields"),
        (
            "4K max 0 0 5s max evict",
            1,
            19,
            "is not an action: use one of stat",
        ),
        ("4q max 0 0 5s max pageout", 1, 1, "is not a unit"),
        (
            "2M 1M 0 0 5s max pageout",
            1,
            1,
            "the minimum size (2M) is above the maximum (1M)",
        ),
        (
            "4K max 6 5 5s max pageout",
            1,
            8,
            "the minimum frequency (6%) is above the maximum (5%)",
        ),
        ("4K max 0 101 5s max pageout", 1, 10, "the maximum is 100%"),
        ("4K max 0 0 5 max pageout", 1, 12, "has no unit"),
        (
            "4K max 0 0 5s 1s pageout",
            1,
            12,
            "the minimum age (5s) is above the maximum (1s)",
        ),
        ("4K max 0 0 5s max pageout 500M", 1, 31, "the window is missing"),
        ("4K max 0 0 5s max pageout 0 1s", 1, 27, "means no limit"),
        (
            "4K max 0 0 5s max pageout 1M 0",
            1,
            30,
            "window of the limit is 0",
        ),
        (
            "4K max 0 5 auto max pageout",
            1,
            10,
            "the maximum frequency must be 0",
        ),
        ("4K max 0 0 max auto pageout", 1, 16, "auto"),
        ("4K max 0 0 5s max pageout 500M 1s x", 1, 35, "one field too many"),
        // Weights, as the first versions of DAMOS had them after the limit.
        (
            "4K max 0 0 5s max pageout 500M 1s 0 7 3",
            1,
            35,
            "Write it in TOML or as damo's JSON if it has weights",
        ),
    ] {
        refused("a.damos", text, line, column, message);
    }
    refused(
        "a.damos",
        &format!("{good}# words\n{good}4K max 0 0 5 max pageout\n"),
        4,
        12,
        "has no unit",
    );
}

#[test]
fn json_errors_have_position_and_correction() {
    for (text, line, column, message) in [
        ("", 1, 1, "no scheme in this file"),
        ("[]", 1, 1, "no scheme in this file"),
        ("[{]", 1, 3, "this is not JSON"),
        ("[{\"action\": \"stat\",}]", 1, 19, "this is not JSON"),
        ("{\"kdamonds\": []}", 1, 1, "expected a list of schemes"),
        ("[3]", 1, 2, "a scheme must be a table, found a number"),
        ("[{}]", 1, 2, "has no action"),
        ("[{\"action\": 1}]", 1, 13, "expected a string in quotes"),
        (
            "[{\"action\": \"stat\",\n \"acces_pattern\": {}}]",
            2,
            2,
            "a scheme has no field \"acces_pattern\": use one of action",
        ),
        (
            "[{\"action\": \"stat\", \"access_pattern\": {\"age_unit\": \"sec\"}}]",
            1,
            52,
            "\"sec\" is not a unit: use one of usec, aggr_intervals",
        ),
        (
            "[{\"action\": \"stat\", \"action\": \"cold\"}]",
            1,
            21,
            "given twice",
        ),
        (
            "[{\"action\": \"stat\", \"access_pattern\": {\"sz_bytes\": {\"min\": \"x\"}}}]",
            1,
            60,
            "is not a number",
        ),
        (
            "[{\"action\": \"stat\", \"access_pattern\": {\"sz_bytes\": {\"mni\": \"1\"}}}]",
            1,
            53,
            "use one of min, max",
        ),
        (
            "[{\"action\": \"stat\", \"access_pattern\": {\"age\": {\"min\": \"2 s\", \"max\": \"1 s\"}}}]",
            1,
            47,
            "minimum age (2s)",
        ),
        (
            "[{\"action\": \"stat\", \"access_pattern\": {\"nr_accesses\": {\"min\": \"3 %\", \"max\": \"9 samples\"}}}]",
            1,
            55,
            "use the same for both",
        ),
        (
            "[{\"action\": \"migrate_hot\", \"target_nid\": -2}]",
            1,
            42,
            "not a whole number",
        ),
        (
            "[{\"action\": \"migrate_hot\", \"target_nid\": 1, \"dests\": [{\"id\": 0}]}]",
            1,
            42,
            "are both given",
        ),
        (
            "[{\"action\": \"migrate_hot\", \"dests\": [{\"weight\": 1}]}]",
            1,
            38,
            "has no id",
        ),
        (
            "[{\"action\": \"stat\", \"dests\": [{\"id\": 1}]}]",
            1,
            2,
            "does not move memory",
        ),
        (
            "[{\"action\": \"stat\", \"quotas\": {\"goals\": [{\"metric\": \"node_ineligible_mem_bp\", \"target_value\": 5}]}}]",
            1,
            53,
            "use node_eligible_mem_bp",
        ),
        (
            "[{\"action\": \"stat\", \"filters\": [{\"filter_type\": \"old\"}]}]",
            1,
            49,
            "is not a filter type",
        ),
        (
            "[{\"action\": \"stat\", \"filters\": [{\"filter_type\": \"memcg\"}]}]",
            1,
            33,
            "needs a memcg_path",
        ),
    ] {
        refused("a.json", text, line, column, message);
    }
}

#[test]
fn toml_errors_have_position_and_correction() {
    let scheme = "[[scheme]]\naction = \"stat\"\n";
    refused("a.toml", "", 1, 1, "no scheme in this file");
    refused("a.toml", "scheme = []", 1, 1, "no scheme in this file");
    refused("a.toml", "[[scheme]\n", 1, 10, "this is not TOML");
    refused(
        "a.toml",
        "[[schemes]]\naction = \"stat\"\n",
        1,
        3,
        "the file has no field \"schemes\"",
    );
    for (rest, line, column, message) in [
        (
            "actoin = 1",
            3,
            1,
            "a scheme has no field \"actoin\": use one of action",
        ),
        ("sz = 4", 3, 6, "must be a minimum and a maximum"),
        ("sz = [1]", 3, 6, "has 1 entries and must have two"),
        ("sz = [2, 1]", 3, 6, "the minimum sz (2) is above the maximum (1)"),
        ("age = [5, \"max\"]", 3, 8, "has no unit"),
        ("nr_accesses = [0, \"120%\"]", 3, 19, "the maximum is 100%"),
        ("age = 2020-01-01", 3, 7, "a date"),
        ("[scheme.quota]\nsz = \"1M\"", 3, 1, "the quota has no window"),
        (
            "quota = { sz = \"1M\", reset_interval = \"0\" }",
            3,
            39,
            "the quota has no window",
        ),
        (
            "quota = { goals = [{ metric = \"x\" }], reset_interval = \"1s\" }",
            3,
            20,
            "has no target_value",
        ),
        (
            "quota = { goals = [{ metric = \"x\", target_value = 1 }] }",
            3,
            31,
            "is not a goal metric",
        ),
        (
            "quota = { goals = [{ metric = \"active_mem_bp\", target_value = \"101%\" }] }",
            3,
            63,
            "more than 100%",
        ),
        (
            "quota = { goals = [{ metric = \"node_memcg_used_bp\", target_value = 1 }] }",
            3,
            20,
            "needs the path",
        ),
        (
            "watermarks = { high = \"10%\", mid = \"20%\" }",
            3,
            14,
            "out of order (high 10 %, mid 20 %, low 0 %)",
        ),
        (
            "watermarks = { metric = \"free_mem_rate\" }",
            3,
            14,
            "never checked",
        ),
        (
            "watermarks = { metric = \"psi\" }",
            3,
            25,
            "use one of none, free_mem_rate",
        ),
        (
            "filters = [{ type = \"anon\", memcg_path = \"/a\" }]",
            3,
            42,
            "has no memcg_path",
        ),
        (
            "filters = [{ type = \"anon\", matching = 1 }]",
            3,
            40,
            "expected true or false",
        ),
        (
            "filters = [{ type = \"addr\", address_range = { start = 2, end = 2 } }]",
            3,
            45,
            "is empty",
        ),
    ] {
        refused("a.toml", &format!("{scheme}{rest}\n"), line, column, message);
    }
}

#[test]
fn automatic_age_errors_have_position_and_correction() {
    let head = "[[scheme]]\naction = \"pageout\"\nnr_accesses = [\"0%\", \"0%\"]\n";
    for (lines, line, column, message) in [
        (
            "min_age = \"auto\"\nmax_refaults = \"0.2%\"",
            5,
            16,
            "\"0.2%\" has no unit: use one of %/min, as in 0.2%/min",
        ),
        (
            "min_age = \"auto\"\nmax_refaults = 0.2",
            5,
            16,
            "has no unit: use one of %/min",
        ),
        (
            "min_age = \"auto\"\nmax_refaults = \"2%/h\"",
            5,
            16,
            "is not a unit",
        ),
        ("max_refaults = \"0.2%/min\"", 4, 16, "add min_age = \"auto\""),
        (
            "min_age = \"5s\"",
            4,
            11,
            "write a fixed age as age = [\"5s\", \"max\"]",
        ),
        ("min_age = 5", 4, 11, "expected a string"),
        (
            "min_age = \"auto\"\nage = [\"5s\", \"max\"]",
            4,
            11,
            "age has a minimum as well: leave age out",
        ),
    ] {
        refused("a.toml", &format!("{head}{lines}\n"), line, column, message);
    }
    let accessed = "[[scheme]]\naction = \"pageout\"\nmin_age = \"auto\"\n";
    refused("a.toml", accessed, 3, 11, "add nr_accesses = [\"0%\", \"0%\"]");
    let json = "[{\"action\": \"pageout\", \"min_age\": \"auto\"}]";
    refused(
        "a.json",
        json,
        1,
        35,
        "damo's schemes have no automatic age: write this scheme as TOML",
    );
}
