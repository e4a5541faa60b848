//! The commands and recipes that the documents show. Each command is one that the program takes; what needs neither a GPU,
//! nor a network, nor a folder of the reader's runs here. README.md, first-steps.md and fine-tune.md are followed from top to bottom.

use std::os::unix::fs::symlink;
use std::path::Path;

use clap::Parser;
use runner::cli::{Cli, Command};

use crate::docs::{ROOT, documents, read};
use crate::place::{Place, fixture};

/// A GPU for whose cells a machine without one checks recipes.
const GPU: &str = "cuda, 80 GiB, sm_90";

/// A block between lines of three backticks: what stands behind the first of these, and its lines.
struct Block {
    language: String,
    text: String,
}

fn blocks(document: &str) -> Vec<Block> {
    let fenced = document.split("\n```").skip(1).step_by(2);
    let block = |text: &str| {
        let (language, text) = text.split_once('\n').expect("a block has lines");
        Block { language: language.to_string(), text: text.replace("\\\n", " ") }
    };
    fenced.map(block).collect()
}

/// A line of a block that starts the runner, without its comment and what a shell makes of it.
#[derive(Clone, Debug)]
struct Shown {
    words: Vec<String>,
    comment: String,
}

impl Shown {
    fn parse(line: &str) -> Option<Self> {
        let (command, comment) = line.split_once(" # ").unwrap_or((line, ""));
        let words = command.starts_with("runner ").then(|| words(command))?;
        Some(Self { words, comment: comment.to_string() })
    }

    /// A word that the reader replaces: `MODEL`, `<device>`.
    fn has_placeholder(&self) -> bool {
        let is_name = |word: &String| {
            word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()) || word.contains('<')
        };
        self.words[1..].iter().any(is_name)
    }

    fn needs_gpu(&self) -> bool {
        self.comment.contains("GPU")
    }

    fn arguments(&self) -> Vec<&str> {
        self.words[1..].iter().map(String::as_str).collect()
    }
}

/// The words of a command, with quotes as in a shell.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in command.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ' ') if word.is_empty() => {}
            (None, ' ') => words.push(std::mem::take(&mut word)),
            _ => word.push(c),
        }
    }
    assert!(quote.is_none(), "an open quote in {command}");
    words
}

fn shown(document: &str) -> Vec<Shown> {
    let plain = blocks(document).into_iter().filter(|block| block.language.is_empty());
    let lines: Vec<String> =
        plain.flat_map(|block| block.text.lines().map(str::to_string).collect::<Vec<_>>()).collect();
    lines.iter().filter_map(|line| Shown::parse(line)).collect()
}

/// A folder that has what a clone has.
fn clone() -> Place {
    let place = Place::new("");
    for name in ["recipes", "examples", "tests", "README.md"] {
        symlink(Path::new(ROOT).join(name), place.path().join(name)).expect("a link");
    }
    place
}

/// What shows that a command of the documents is right, where it does not write and needs no GPU: the command itself, or its plan.
fn trial(shown: &Shown) -> Option<Vec<&str>> {
    let cli = Cli::try_parse_from(&shown.words).unwrap_or_else(|error| panic!("{shown:?}: {error}"));
    let own = shown.arguments();
    let of_recipe = |recipe: &Path, more: &[&'static str]| {
        let settings = own.windows(2).filter(|pair| pair[0] == "--set").flatten().copied();
        let named = own.iter().copied().find(|word| Path::new(word) == recipe).expect("it is named");
        Some([&["check", named], more].concat().into_iter().chain(settings).collect())
    };
    if shown.has_placeholder() {
        return None;
    }
    match &cli.command {
        // A join needs processes beside it, and a GPU's cell a GPU.
        Command::Join(args) => of_recipe(&args.recipe, &["--for", GPU]),
        Command::Run(args) if shown.needs_gpu() => of_recipe(&args.recipe, &["--for", GPU]),
        Command::Run(_) => Some([&own[..], &["--dry-run"]].concat()),
        Command::Plan { .. }
        | Command::Check { .. }
        | Command::Memory(_)
        | Command::Advise(_)
        | Command::Data(_) => Some(own),
        Command::Devices { .. } | Command::Keys { .. } | Command::Recipes { .. } | Command::Schema => {
            Some(own)
        }
        Command::Verify(_) if own[1].starts_with("tests/") => Some(own),
        _ => None,
    }
}

#[test]
fn every_command_of_the_documents_is_one() {
    let place = clone();
    let followed = ["first-steps.md", "fine-tune.md"];
    let (mut parsed, mut tried, mut wrong) = (0, 0, Vec::new());
    for document in documents().into_iter().filter(|path| !followed.iter().any(|name| path.ends_with(name))) {
        for shown in shown(&read(&document)) {
            parsed += 1;
            let Some(trial) = trial(&shown) else { continue };
            tried += 1;
            // Several documents write the same recipe.
            for written in trial.windows(2).filter(|pair| pair[0] == "--write") {
                let _ = std::fs::remove_file(place.path().join(written[1]));
            }
            let ended = place.runner(&trial);
            if ended.code != Some(0) {
                wrong.push(format!(
                    "{}: {}\n{}{}",
                    document.display(),
                    trial.join(" "),
                    ended.out,
                    ended.err
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(parsed > 60 && tried > 40, "{tried} of {parsed} commands");
}

/// The name under which a document tells to save the recipe that it shows first, and this recipe.
fn saved_recipe(document: &str) -> (String, String) {
    let named = ["Save it as `", "Save this as `"].iter().find_map(|words| document.split_once(words));
    let (_, rest) = named.expect("where to save the recipe");
    let (name, _) = rest.split_once('`').expect("a name");
    let recipe = blocks(document).into_iter().find(|block| block.language == "toml").expect("a recipe");
    (name.to_string(), recipe.text)
}

/// Follows a document: saves its recipe, and runs its commands with fewer steps.
fn follow(place: &Place, document: &str, fewer: &[&str]) {
    let (name, recipe) = saved_recipe(document);
    place.write(&name, &recipe);
    for shown in shown(document) {
        Cli::try_parse_from(&shown.words).unwrap_or_else(|error| panic!("{shown:?}: {error}"));
        let fewer = if shown.words[1] == "run" { fewer } else { &[] };
        place.runner(&[&shown.arguments(), fewer].concat()).exits(0);
    }
}

#[test]
fn the_first_steps_can_be_followed() {
    let place = clone();
    let document = read(&Path::new(ROOT).join("docs/first-steps.md"));
    follow(&place, &document, &["--set", "measure.repeats=1", "--set", "measure.steps=2"]);
    let of_quickstart = place.path().join("mine/quickstart");
    let device =
        of_quickstart.read_dir().expect("results").next().expect("a device").expect("a folder").path();
    for file in ["report.html", "table.csv", "table.tex", "charts", "rows"] {
        assert!(device.join(file).exists(), "no {file}");
    }
}

#[test]
fn the_readmes_recipe_gives_a_report() {
    let place = clone();
    let (name, recipe) = saved_recipe(&read(&Path::new(ROOT).join("README.md")));
    place.write(&name, &recipe);
    place.runner(&["check", &name]).exits(0).says(&["3 cells, all valid"]);
}

/// A model of one layer with the tokenizer of chats.
const BASE: &str = r#"title = "base"
[model]
kind = "gpt2"
vocab_size = 350
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 1024
[data]
corpus = "generated"
size = "20 KiB"
tokenizer = "TOKENIZER"
[train]
batch_size = 1
seq_len = 8
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
warmup = 0
steps = 1
[save]
weights = "base"
"#;

/// With that model in the place of the Hub's.
#[test]
fn fine_tuning_can_be_followed() {
    let place = clone();
    place.write("base.toml", &BASE.replace("TOKENIZER", &fixture("chats/tokenizer")));
    place.runner(&["run", "base.toml"]).exits(0);
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    place.write("base/chat_template.jinja", template);
    symlink(Path::new(ROOT).join("examples/chats"), place.path().join("chats")).expect("a link");
    let document = read(&Path::new(ROOT).join("docs/fine-tune.md"));
    let document = document.replace("Qwen/Qwen2.5-0.5B-Instruct", "base");
    follow(&place, &document, &["--set", "measure.epochs=1"]);
}
