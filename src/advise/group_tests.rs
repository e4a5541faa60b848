//! Which groups there are, which way is advised, and how it is found.

use itertools::Itertools;

use super::tests::{SMALL, cell, cell_for};
use super::*;
use crate::common::DeviceId;
use crate::recipe::{Recipe, Source};

fn asked_about(text: &str, device: &str, host_memory: Option<u64>) -> (Cell, Advice) {
    let target: Target = device.parse().expect("a device");
    let source = Source { path: "r.toml".into(), text: format!("title = \"t\"\n{text}") };
    let cell = Recipe::parse_for(&source, &target).expect("a recipe").cells.remove(0);
    let variants = variants(&cell, &target, &Asked::default()).expect("all kinds are known");
    let rates = target.card().map(|(card, part)| Rates::of_card(card, part));
    let limits = Limits { memory: target.info(cell.device_id()).memory_available, host_memory };
    let place = Place { target: &target, limits, rates: rates.as_ref() };
    let advice = advise(&cell, &variants, place, &[]);
    (cell, advice)
}

/// Qwen2.5-1.5B in steps of 4 x 1024 tokens.
const QWEN: &str = "[model]\npreset = \"qwen2.5-1.5b\"\n[precision]\ncompute = \"bf16\"\n[train]\nbatch_size = 4\n\
                    seq_len = 1024\noptimizer = { kind = \"adamw\", lr = 1e-5 }\n";

/// On a card where it is no twentieth faster than AdamW on the host, and takes no tenth less of the card, 8-bit AdamW takes less of
/// the host's memory.
#[test]
fn a_group_that_takes_less_of_the_hosts_memory_is_listed() {
    let (_, advice) = asked_about(QWEN, "rtx 3060", Some(32 << 30));
    let listed: Vec<&Plan> = advice.groups().collect();
    let of = |fidelity| *listed.iter().find(|plan| plan.fidelity == fidelity).expect("it is listed");
    let (same, nearly) = (of(Fidelity::Same), of(Fidelity::Nearly));
    let seconds = |plan: &Plan| plan.seconds().expect("a card");
    assert!(1.05 * seconds(nearly) >= seconds(same), "{} and {} s", seconds(nearly), seconds(same));
    assert!(nearly.memory() as f64 >= 0.9 * same.memory() as f64);
    assert!(10 * nearly.host_memory() < same.host_memory());
}

/// It on an H100 of which 12 GiB may be used, and 32 GiB of its host. Measured there: AdamW on the
/// host 411 to 454 ms, 8-bit AdamW with every block recomputed 109 ms with 9.0 GiB, LoRA 76 ms, QLoRA 69 ms with 7.0 GiB.
#[test]
fn twelve_gib_train_one_and_a_half_billion_parameters_with_8_bits() {
    let (cell, advice) = asked_about(QWEN, "h100, 12 GiB", Some(32 << 30));
    let kind = |plan: &Plan| plan.cell.settings()["train.optimizer.kind"].clone();
    let advised = advice.advised().expect("something fits");
    assert_eq!((kind(advised), advised.fidelity), ("adamw8bit".into(), Fidelity::Nearly));
    let best = |fidelity: Fidelity| advice.best(fidelity).expect("one fits");
    let same = best(Fidelity::Same);
    assert_eq!((kind(same), same.cell.offload.optimizer), ("adamw".into(), Memory::Host));
    let others: Vec<&str> =
        advice.bests(Fidelity::Other).iter().map(|plan| <&str>::from(&plan.cell.tuning)).collect();
    assert!(others.contains(&"lora") && others.contains(&"qlora"), "{others:?}");
    // Nobody asked for another rule.
    assert!(
        advice.fitting.iter().all(|plan| kind(plan).as_str().is_some_and(|kind| kind.starts_with("adamw")))
    );
    assert!(advice.fitting.iter().all(|plan| plan.cell.is_permitted(&"h100".parse().expect("a card"))));
    let recomputed = advice.fitting.iter().filter(|plan| {
        kind(plan) == "adamw8bit"
            && plan.cell.checkpoint.blocks == 1
            && !plan.cell.offload.moves()
            && plan.cell.offload.optimizer == Memory::Device
            && plan.cell.train.batch_size == 4
    });
    let fastest =
        recomputed.min_by(|a, b| a.seconds().partial_cmp(&b.seconds()).expect("numbers")).expect("it fits");
    println!(
        "8-bit, blocks recomputed: {:.1} ms, {} bytes; the same {:.0} ms; {:?}",
        fastest.seconds().expect("a card") * 1e3,
        fastest.driver_memory,
        same.seconds().expect("a card") * 1e3,
        advice
            .bests(Fidelity::Other)
            .iter()
            .map(|plan| plan.seconds().expect("a card") * 1e3)
            .collect::<Vec<_>>()
    );
    assert_eq!(cell.tuning, fastest.cell.tuning);
}

/// State of fewer bits is nearly the same, whether or not it is on the device; an adapter is another training.
#[test]
fn ways_are_grouped_by_what_they_do_to_the_result() {
    let target: Target = "h100".parse().expect("a card");
    let own = cell_for(&target, "[precision]\ncompute = \"bf16\"\nautocast = true\n");
    let fidelity = |change: &dyn Fn(&mut Cell)| {
        let mut way = own.clone();
        change(&mut way);
        Fidelity::new(&own, &way)
    };
    assert_eq!(fidelity(&|cell| cell.checkpoint.blocks = 1), Fidelity::Same);
    assert_eq!(fidelity(&|cell| cell.offload.optimizer = Memory::Host), Fidelity::Same);
    let alone = |cell: &mut Cell| cell.precision.autocast = false;
    assert_eq!(fidelity(&alone), Fidelity::Nearly);
    let on_host = |cell: &mut Cell| {
        cell.precision.autocast = false;
        cell.offload.optimizer = Memory::Host;
    };
    assert_eq!(fidelity(&on_host), Fidelity::Same);
    for (kind, group) in
        [("adamw8bit", Fidelity::Nearly), ("adamw_bf16", Fidelity::Nearly), ("sgd", Fidelity::Other)]
    {
        let other = with_optimizer(&own, kind).expect("a kind");
        assert_eq!(Fidelity::new(&own, &other), group, "{kind}");
    }
    let all = variants(&own, &target, &Asked::default()).expect("all kinds are known");
    let methods: Vec<&str> = all.iter().map(|cell| <&str>::from(&cell.tuning)).unique().collect();
    assert_eq!(methods, ["full", "lora", "qlora"]);
    let lora = all.iter().find(|cell| <&str>::from(&cell.tuning) == "lora").expect("one");
    assert_eq!(
        (Fidelity::new(&own, lora), lora.settings()["train.optimizer.lr"].clone()),
        (Fidelity::Other, 0.01.into())
    );
}

#[test]
fn the_largest_number_that_fits_is_found_to_one_part_in_32() {
    for most in [17, 100, 1000, 4096, 131_072] {
        for limit in [15, 16, 40, 999, 5000, 200_000] {
            let found = largest_that_fits(most, |n| n <= limit);
            let expected = limit.min(most);
            assert!(
                found.is_some_and(
                    |found| found <= expected && (found * 33).div_ceil(32) >= expected.min(found * 2) - 1
                ),
                "{most} {limit} {found:?}"
            );
        }
    }
    assert_eq!(largest_that_fits(100, |_| false), None);
}

/// Another kind of optimizer has the recipe's rate, and its plans stand among the others by time and memory.
#[test]
fn optimizers_are_searched_where_they_are_named() {
    let own = cell(SMALL);
    let kinds = ["adamw", "adamw_bf16", "sgd"].map(|kind| with_optimizer(&own, kind).expect("a kind"));
    assert_eq!(kinds[0], own);
    let settings = kinds[2].settings();
    assert_eq!(settings["train.optimizer.lr"], 1e-3);
    assert!(
        !settings.contains_key("train.optimizer.beta_1") && settings.contains_key("train.optimizer.momentum")
    );
    assert!(with_optimizer(&own, "adam9bit").is_none());
    let kept = ["precision", "checkpoint", "train", "offload"].map(String::from);
    let rates = Rates::assumed(DeviceId::Cpu);
    let needs = |limits| {
        let place = Place { target: &Target::Here, limits, rates: Some(&rates) };
        advise(&own, &kinds[..2], place, &kept)
    };
    let all = needs(Limits { memory: u64::MAX / 2, host_memory: None });
    assert_eq!(all.fitting.len(), 2);
    let memory = |kind: usize| {
        let plan = all.fitting.iter().find(|plan| plan.cell == kinds[kind]).expect("a plan");
        plan.memory()
    };
    assert!(memory(1) < memory(0));
    // Between the two only that with less state fits.
    let middle = needs(Limits { memory: u64::midpoint(memory(0), memory(1)), host_memory: None });
    assert!(middle.fitting.len() == 1 && middle.fitting[0].cell == kinds[1]);
}
