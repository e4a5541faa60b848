//! Replicas, divided layers and stages on GPUs: the same training as in one process, and how their ranks end.

use std::process::Stdio;
use std::time::Duration;

use itertools::Itertools;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runner::device::Feature;
use runner::device::cuda::{self, nccl};

use crate::cuda::{lacks, need_gpu, suited};
use crate::pipeline::TRAINED as STAGES;
use crate::place::{Place, changed, losses};
use crate::ranks::ends::ended_of;
use crate::ranks::{TRAINED, apart, setting};
use crate::tensor::{QWEN2, recipe};

fn on_gpu() -> String {
    let text = TRAINED.split("[save]").next().expect("a beginning");
    changed(text, &[("device = \"cpu\"", "device = \"cuda:0\""), ("steps = 50", "steps = 20")])
}

/// A recipe for the CPU on a GPU, which needs a step of warm-up.
fn of_gpu(text: &str) -> String {
    changed(text, &[("\"cpu\"", "\"cuda:0\""), ("warmup = 0", "warmup = 1")])
}

/// Whether two ranks can have a GPU each; says why not.
fn by_nccl() -> bool {
    need_gpu();
    let why = if cuda::count() < 2 { "there is one GPU" } else { nccl::ABSENT };
    let can = cuda::count() > 1 && nccl::present();
    if !can {
        println!("without NCCL: {why}");
    }
    can
}

/// Sockets also where ranks share one GPU.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn replicas_on_gpus_train_as_one_process_does() {
    let engines = if by_nccl() { "\"sockets\", \"nccl\"" } else { "\"sockets\"" };
    let grid = format!(
        "[[grid]]\n\"parallel.data\" = [1]\n[[grid]]\n\"parallel.data\" = [2]\n\"parallel.engine\" = [{engines}]\n\
         \"parallel.data_reduce\" = [\"all_reduce\", \"rank0\"]\n"
    );
    let place = Place::new(&format!("{}{grid}", on_gpu()));
    place.runner_on_gpu(&["run", "recipe.toml"]).exits(0);
    let rows = place.rows();
    let alone = |row: &serde_json::Value| setting(row, "parallel", "data").is_null();
    let reference = losses(rows.iter().find(|row| alone(row)).expect("a row of one process"));
    for row in rows.iter().filter(|row| !alone(row)) {
        let difference = apart(&losses(row), &reference);
        assert!(difference < 1e-4, "{difference} {}", row["cell"]["parallel"]);
        let way = row["measurement"]["paths"]["ranks"].as_str().expect("a way");
        let expected = if setting(row, "parallel", "engine") == "nccl" { "NCCL 2." } else { "sockets" };
        assert!(way.starts_with(expected), "{way}");
        let records = row["measurement"]["ranks"].as_array().expect("a record of each rank");
        assert_eq!(records.len(), 2);
        for record in records {
            let number = |key: &str| record[key].as_f64().expect("a number");
            assert!(number("sent_bytes") > 0.0 && number("exchange_seconds") > 0.0, "{record}");
            assert!(number("exposed_seconds") <= number("exchange_seconds"), "{record}");
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn divided_replicas_on_gpus_train_as_one_process_does() {
    let engines = if by_nccl() { "\"sockets\", \"nccl\"" } else { "\"sockets\"" };
    let grid = format!(
        "[[grid]]\n\"parallel.data\" = [1]\n[[grid]]\n\"parallel.data\" = [2]\n\"parallel.engine\" = [{engines}]\n\
         \"parallel.shard\" = [\"optimizer\", \"gradients\", \"weights\"]\n"
    );
    let place = Place::new(&format!("{}{grid}", on_gpu()));
    place.runner_on_gpu(&["run", "recipe.toml"]).exits(0);
    let rows = place.rows();
    let alone = |row: &serde_json::Value| setting(row, "parallel", "data").is_null();
    let reference = losses(rows.iter().find(|row| alone(row)).expect("a row of one process"));
    for row in rows.iter().filter(|row| !alone(row)) {
        let difference = apart(&losses(row), &reference);
        assert!(difference < 1e-4, "{difference} {}", row["cell"]["parallel"]);
    }
}

/// A graph marks where a bucket is full, and NCCL waits for the mark: losses are the same to the last bit. In bf16 a bucket is
/// one vector, in fp32 it is the gradients themselves; without clipping blocks are updated while the rest is summed.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn replicas_train_by_a_graph_as_by_its_launches() {
    if !by_nccl() {
        return;
    }
    let grid = "[[grid]]\n\"parallel.data\" = [2]\n\"parallel.engine\" = [\"nccl\"]\n\
                \"train.graph\" = [false, true]\n\"train.accumulation_steps\" = [1, 3]\n\
                \"precision.compute\" = [\"fp32\", \"bf16\"]\n";
    let clipped = changed(&on_gpu(), &[("accumulation_steps = 2\n", ""), ("warmup = 1", "warmup = 2")]);
    for text in [changed(&clipped, &[("clip_norm = 0.5\n", "")]), clipped] {
        let place = Place::new(&suited(&format!("{text}{grid}")));
        place.runner_on_gpu(&["run", "recipe.toml"]).exits(0);
        let rows = place.rows();
        let is_recorded = |row: &&serde_json::Value| row["cell"]["train"]["graph"] == true;
        assert_eq!((rows.len(), rows.iter().filter(is_recorded).count()), (8, 4));
        for graph in rows.iter().filter(is_recorded) {
            let mut cell = graph["cell"].clone();
            cell["train"].as_object_mut().expect("a section").remove("graph");
            let launches = rows.iter().find(|row| row["cell"] == cell).expect("the same without");
            let path = &graph["measurement"]["paths"]["graph"];
            assert_eq!(path, "forward and backward are one CUDA graph", "{}", graph["cell"]);
            assert_eq!(losses(graph), losses(launches), "{}", graph["cell"]);
        }
    }
}

/// Sums over two ranks in fp32, of tied embeddings with accumulation and clipping, and those of keys and values that
/// several heads read, with blocks that are computed again.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn divided_layers_on_gpus_train_as_one_process_does() {
    let engines = if by_nccl() { "\"sockets\", \"nccl\"" } else { "\"sockets\"" };
    let grid = format!(
        "[[grid]]\n\"parallel.tensor\" = [1]\n[[grid]]\n\"parallel.tensor\" = [2]\n\
         \"parallel.engine\" = [{engines}]\n"
    );
    let heads = QWEN2.replace("num_key_value_heads = 4", "num_key_value_heads = 2");
    let again = of_gpu(&recipe(&heads, "[checkpoint]\nblocks = 1\n"));
    for text in [on_gpu(), again] {
        let place = Place::new(&format!("{text}{grid}"));
        place.runner_on_gpu(&["run", "recipe.toml"]).exits(0);
        let rows = place.rows();
        let alone = |row: &serde_json::Value| setting(row, "parallel", "tensor").is_null();
        let reference = losses(rows.iter().find(|row| alone(row)).expect("a row of one process"));
        for row in rows.iter().filter(|row| !alone(row)) {
            let difference = apart(&losses(row), &reference);
            assert!(difference < 1e-5, "{difference} {}", row["cell"]["parallel"]);
            let way = row["measurement"]["paths"]["ranks"].as_str().expect("a way");
            let expected = if setting(row, "parallel", "engine") == "nccl" { "NCCL 2." } else { "sockets" };
            assert!(way.starts_with(expected), "{way}");
        }
    }
}

/// Stages with a tied embedding and blocks that do not divide evenly, whose gradients are clipped.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn stages_on_gpus_train_as_one_process_does() {
    let engines = if by_nccl() { "\"sockets\", \"nccl\"" } else { "\"sockets\"" };
    let both = format!(
        "\"parallel.pipeline.stages\" = [2]\n\"parallel.pipeline.micro_batches\" = [8]\n\
         \"parallel.engine\" = [{engines}]\n"
    );
    let grid = format!(
        "[[grid]]\n\"parallel.data\" = [1]\n\
         [[grid]]\n{both}\"parallel.pipeline.schedule\" = [\"gpipe\", \"1f1b\"]\n\
         [[grid]]\n{both}\"parallel.pipeline.schedule\" = [\"interleaved\"]\n\
         \"parallel.pipeline.chunks\" = [2]\n"
    );
    let place = Place::new(&format!("{}{grid}", STAGES.replace("\"cpu\"", "\"cuda:0\"")));
    place.runner_on_gpu(&["run", "recipe.toml"]).exits(0);
    let rows = place.rows();
    let alone = |row: &serde_json::Value| row["cell"]["parallel"]["pipeline"].is_null();
    let reference = losses(rows.iter().find(|row| alone(row)).expect("a row of one process"));
    for row in rows.iter().filter(|row| !alone(row)) {
        let difference = apart(&losses(row), &reference);
        assert!(difference < 1e-5, "{difference} {}", row["cell"]["parallel"]);
        let of = |record: &serde_json::Value| -> Vec<[f64; 2]> {
            let time = |span: &serde_json::Value, key: &str| span[key].as_f64().expect("seconds");
            let spans = record["timeline"].as_array().expect("spans").iter();
            spans.map(|span| [time(span, "start"), time(span, "end")]).collect()
        };
        let ranks = row["measurement"]["ranks"].as_array().expect("a record of each rank");
        for spans in ranks.iter().map(of) {
            // One after the other, by the device's clock.
            assert!(spans.iter().all(|[start, end]| start < end), "{spans:?}");
            assert!(spans.windows(2).all(|pair| pair[0][1] <= pair[1][0] + 1e-6), "{spans:?}");
        }
        // The second rank begins once the first one's output is there.
        assert!(of(&ranks[1])[0][0] > of(&ranks[0])[0][1] - 1e-3, "{ranks:?}");
    }
}

/// NCCL adds two bf16 numbers and rounds; sockets add in fp32 and round.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn divided_layers_in_bf16_are_summed_alike_by_both_engines() {
    if !by_nccl() || lacks(Feature::Bf16Products) {
        return;
    }
    let more = "[precision]\ncompute = \"bf16\"\n[grid]\n\"parallel.tensor\" = [2]\n\
                \"parallel.engine\" = [\"sockets\", \"nccl\"]\n";
    let place = Place::new(&of_gpu(&recipe(QWEN2, more)));
    place.runner_on_gpu(&["run", "recipe.toml"]).exits(0);
    let rows = place.rows();
    let difference = apart(&losses(&rows[0]), &losses(&rows[1]));
    assert!(rows.len() == 2 && difference < 1e-4, "{difference}");
    // Two bytes for each number in the place of four.
    let sent = |engine: &str| {
        let row = rows.iter().find(|row| setting(row, "parallel", "engine") == engine).expect("a row");
        row["measurement"]["ranks"][0]["sent_bytes"].as_f64().expect("a number")
    };
    assert!(sent("nccl") < 0.7 * sent("sockets"), "{} {}", sent("nccl"), sent("sockets"));
}

/// While GPUs are opened and connected, and while they train. The three kinds share the GPUs.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_rank_that_is_killed_or_hangs_with_its_gpu_is_named() {
    if !by_nccl() {
        return;
    }
    let stages = "pipeline = { stages = 2, schedule = \"1f1b\", micro_batches = 2 }";
    std::thread::scope(|scope| {
        for kind in ["data = 2", "tensor = 2", stages] {
            scope.spawn(move || ends_by_name(kind));
        }
    });
}

fn ends_by_name(kind: &str) {
    let endless =
        changed(&on_gpu(), &[("\nsteps = 20", "\nsteps = 1000000"), ("accumulation_steps = 2\n", "")]);
    for (signal, seconds) in [Signal::SIGKILL, Signal::SIGSTOP].into_iter().cartesian_product([3, 30]) {
        let place = Place::new(&format!("{endless}[parallel]\n{kind}\nengine = \"nccl\"\ntimeout = 15.0\n"));
        let mut command = place.command_on_gpu(&["run", "recipe.toml", "--force"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let run = command.spawn().expect("the binary starts");
        let (row, took) = ended_of(&place, run, 2, |ranks| {
            std::thread::sleep(Duration::from_secs(seconds));
            kill(Pid::from_raw(ranks[1] as i32), signal).expect("it runs");
        });
        let reason = row["reason"].as_str().expect("a reason");
        let (begins, limit) = match signal {
            Signal::SIGKILL => ("rank 1 of 2: killed by signal 9 (SIGKILL)", 10.0),
            _ => ("rank 1 of 2 does not answer", 50.0),
        };
        assert!(row["status"] == "failed" && reason.starts_with(begins), "{kind}: {reason}");
        assert!(took < limit, "{kind}: {took} s after {signal} at {seconds} s");
    }
}
