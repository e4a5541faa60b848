//! `runner init`: a recipe that runs as it is.

use crate::place::{Place, TINY};

#[test]
fn the_first_recipe_is_valid_and_runs() {
    let place = Place::new(TINY);
    place.runner(&["init"]).exits(0).says(&["my.toml trains on my.jsonl", "`runner run my.toml`"]);
    place.runner(&["check", "my.toml"]).exits(0).says(&["my.toml: 2 cells, all valid"]);
    let short = ["run", "my.toml", "--set", "measure.steps=2", "--set", "measure.repeats=1"];
    place.runner(&short).exits(0).says(&["2 measured", "checkpoint.blocks"]);
    // Each of the two files keeps what the user has made of it.
    let written = std::fs::read_to_string(place.path().join("my.toml")).unwrap();
    place.runner(&["init"]).exits(1).says(&["my.toml is there already", "runner init FILE.toml"]);
    std::fs::rename(place.path().join("my.toml"), place.path().join("mine.toml")).unwrap();
    place.runner(&["init"]).exits(1).says(&["my.jsonl is there already"]);
    assert!(!place.path().join("my.toml").exists());
    place.runner(&["init", "no folder/a.toml"]).exits(1).says(&["cannot write no folder/a"]);
    place.runner(&["init", "second.toml"]).exits(0).says(&["second.toml trains on second.jsonl"]);
    let second = std::fs::read_to_string(place.path().join("second.toml")).unwrap();
    let free =
        |text: &str| text.lines().filter(|line| !line.contains("free.")).collect::<Vec<_>>().join("\n");
    assert_eq!(free(&second.replace("second", "my")), free(&written));
}
