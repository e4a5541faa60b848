//! A step does what its list says: other orders of the same work give the same update.

use super::*;
use crate::data::Share;
use crate::model::language::Decoder;
use crate::parallel::schedule::accumulation;
use crate::params::named::Named;
use crate::recipe::{Recipe, Source};

type Network = Decoder;

fn cell(more: &str) -> Cell {
    let own = more.starts_with("optimizer");
    let optimizer = if own { "" } else { "optimizer = { kind = \"sgd\", lr = 0.5 }\n" };
    let text = format!(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"gpt2\"\nvocab_size = 50\nhidden_size = 8\n\
         num_hidden_layers = 2\nnum_attention_heads = 2\nmax_position_embeddings = 8\n[train]\nbatch_size = 2\n\
         seq_len = 8\naccumulation_steps = 3\n{optimizer}{more}"
    );
    let source = Source { path: "r.toml".into(), text };
    Recipe::parse(&source).expect("a recipe").cells.remove(0)
}

/// Losses of all forwards and the parameters after these actions, of one step's micro-batches.
fn carried_out(cell: &Cell, actions: &[Action]) -> (Vec<f32>, Named) {
    let batches = Network::feed(cell, Share::WHOLE).next();
    let mut losses = Vec::new();
    let mut end =
        |_: PhaseEnd, loss: Option<Tensor<1>>| losses.extend(loss.map(|loss| loss.into_scalar::<f32>()));
    let mut step = Step::<Network>::new(cell, cell, &Groups::alone(), 3, 0);
    step.run(actions, &batches, &mut end, None);
    (losses, step.stage.residence.parameters())
}

fn forward(micro_batch: usize) -> Action {
    Action::Forward { stage: 0, micro_batch }
}

fn backward(micro_batch: usize) -> Action {
    Action::Backward { stage: 0, micro_batch }
}

/// All forwards before all backwards, as a pipeline has them: the same losses, and gradients that are added
/// up in another order.
#[test]
fn the_order_of_forwards_and_backwards_changes_nothing_but_rounding() {
    let cell = cell("clip_norm = 0.5\n");
    let (losses, expected) = carried_out(&cell, &accumulation(3));
    let mut actions = [0, 1, 2].map(forward).to_vec();
    actions.extend([2, 1, 0].map(backward));
    let (without_update, before) = carried_out(&cell, &actions);
    actions.push(Action::Update);
    let (other, after) = carried_out(&cell, &actions);
    assert_eq!(losses, other);
    assert_eq!(losses, without_update);
    let mut changed = 0;
    for ((name, expected), ((_, after), (_, before))) in expected.iter().zip(after.iter().zip(&before)) {
        for ((expected, after), before) in expected.iter().zip(after).zip(before) {
            assert!((expected - after).abs() < 1e-6, "{name}: {expected} and {after}");
            changed += usize::from((after - before).abs() > 1e-5);
        }
    }
    assert!(changed > 100, "{changed} values were changed by the update");
}

/// An update after each backward is a step for each micro-batch.
#[test]
fn gradients_are_those_since_the_last_update() {
    let cell = cell("schedule = { kind = \"cosine\", warmup_steps = 1 }\n");
    let actions: Vec<Action> = (0..3).flat_map(|i| [forward(i), backward(i), Action::Update]).collect();
    let (losses, parameters) = carried_out(&cell, &actions);
    let batches = Network::feed(&cell, Share::WHOLE).next();
    let mut step = Step::<Network>::new(&cell, &cell, &Groups::alone(), 3, 0);
    let mut alone: Vec<f32> = Vec::new();
    for batch in &batches {
        let mut end =
            |_: PhaseEnd, loss: Option<Tensor<1>>| alone.extend(loss.map(|loss| loss.into_scalar::<f32>()));
        step.run(&accumulation(1), std::slice::from_ref(batch), &mut end, None);
    }
    assert_eq!(losses, alone);
    assert_eq!(parameters, step.stage.residence.parameters());
    assert_ne!(losses, carried_out(&cell, &accumulation(3)).0, "later forwards see the updates");
}

/// Parameters after each of four steps, with the gradients of each where they are looked at before its update: then no
/// update begins in backward.
fn trained(cell: &Cell, looks: bool) -> (Vec<Named>, Vec<Named>) {
    let mut feed = Network::feed(cell, Share::WHOLE);
    let mut step = Step::<Network>::new(cell, cell, &Groups::alone(), 4, 0);
    let (mut parameters, mut gradients) = (vec![step.stage.residence.parameters()], Vec::new());
    for _ in 0..4 {
        let batches = feed.next();
        let look: &mut Look<'_, Network> = &mut |before| gradients.push(before.residence.gradients());
        step.run(&accumulation(batches.len()), &batches, &mut |_, _| (), looks.then_some(look));
        parameters.push(step.stage.residence.parameters());
    }
    (parameters, gradients)
}

fn norm(gradients: &Named) -> f64 {
    gradients.iter().flat_map(|(_, values)| values).map(|g| g.powi(2)).sum::<f64>().sqrt()
}

#[test]
fn the_norm_of_a_step_is_that_of_its_gradients() {
    for more in ["", "[offload]\nstrategy = \"overlap\"\n"] {
        let cell = cell(&format!("optimizer = {{ kind = \"none\" }}\n{more}"));
        let batches = Network::feed(&cell, Share::WHOLE).next();
        let mut step = Step::<Network>::new(&cell, &cell, &Groups::alone(), 2, 0);
        let (actions, mut expected) = (accumulation(3), 0.0);
        let look: &mut Look<'_, Network> = &mut |before| expected = norm(&before.residence.gradients());
        step.run(&actions, &batches, &mut |_, _| (), Some(look));
        let measured = step.gradient_norm(&actions, &batches);
        assert!((measured / expected - 1.0).abs() < 1e-6, "{more}: {measured} and {expected}");
    }
}

/// p ← p − lr · min(1, limit / norm of the step before) · g, and the first step as it is.
#[test]
fn the_norm_of_the_step_before_clips() {
    for more in ["", "[offload]\nstrategy = \"overlap\"\n"] {
        let cell = cell(&format!("clip_norm = 0.02\nclip = \"previous_norm\"\n{more}"));
        let (parameters, gradients) = trained(&cell, true);
        let mut factors = vec![1.0];
        factors.extend(gradients.iter().map(|gradients| (0.02 / (norm(gradients) + 1e-6)).min(1.0)));
        assert!(factors[1..].iter().all(|factor| *factor < 0.9), "{factors:?}");
        for (step, gradients) in gradients.iter().enumerate() {
            let sides = parameters[step].iter().zip(&parameters[step + 1]);
            for ((name, before), (_, after)) in sides {
                let (_, gradient) = gradients.iter().find(|(of, _)| of == name).expect("all are trained");
                for ((before, after), g) in before.iter().zip(after).zip(gradient) {
                    let expected = *before - 0.5 * factors[step] * *g;
                    let off = (expected - *after).abs();
                    assert!(off < 1e-6, "{name}, step {step}: {after} is not {expected}");
                }
            }
        }
    }
}

/// Updates on the host that begin in backward are those that begin after it.
#[test]
fn updates_that_begin_in_backward_change_nothing() {
    let text = |steps: usize, more: &str| {
        format!(
            "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"gpt2\"\nvocab_size = 50\nhidden_size = 8\n\
             num_hidden_layers = 3\nnum_attention_heads = 2\nmax_position_embeddings = 8\n[train]\nbatch_size = 2\n\
             seq_len = 8\naccumulation_steps = {steps}\noptimizer = {{ kind = \"adamw\", lr = 0.01 }}\n{more}"
        )
    };
    for steps in [1, 3] {
        for (clip, tolerance) in [("", 0.0), ("clip_norm = 0.5\nclip = \"previous_norm\"\n", 1e-6)] {
            for place in [
                "strategy = \"none\"",
                "strategy = \"overlap\"",
                "strategy = \"none\"\n[checkpoint]\nblocks = 2",
            ] {
                let text = text(steps, &format!("{clip}[offload]\noptimizer = \"host\"\n{place}\n"));
                let source = Source { path: "r.toml".into(), text: text.clone() };
                let cell = Recipe::parse(&source).expect("a recipe").cells.remove(0);
                let [early, late] = [false, true].map(|looks| trained(&cell, looks).0.pop().expect("steps"));
                for ((name, early), (_, late)) in early.iter().zip(&late) {
                    for (early, late) in early.iter().zip(late) {
                        assert!((early - late).abs() <= tolerance, "{name}: {early} and {late} of {text}");
                    }
                }
            }
        }
    }
}
