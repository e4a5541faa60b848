//! Frequencies and factors against those of transformers 5.24 (`ROPE_INIT_FUNCTIONS`), and the tables of config.json.

use serde_json::{Value, json};

use super::*;
use crate::ops::rope::RopeParameters;

fn read(table: Value, longest: usize, original: Option<usize>) -> Result<RopeParameters, String> {
    RopeParameters::read(table.as_object().expect("a table"), longest, original)
}

/// Of a table with θ and `turned` elements, in a file with this `max_position_embeddings`, at these lengths.
fn check(table: Value, turned: usize, longest: usize, lengths: &[usize], expected: &[f64], factor: f64) {
    let RopeParameters { theta, scaling, .. } = read(table.clone(), longest, None).expect("a known table");
    scaling.check(turned).expect("it fits");
    for length in lengths {
        let ours = scaling.frequencies(theta.expect("a theta"), turned, *length);
        assert_eq!(ours.len(), expected.len());
        for (ours, expected) in ours.iter().zip(expected) {
            let off = (f64::from(*ours) - expected).abs() / expected;
            assert!(off < 1e-6, "{table} of length {length}: {ours} {expected}");
        }
    }
    assert!((scaling.attention_factor() - factor).abs() < 1e-12, "{table}: {}", scaling.attention_factor());
}

#[test]
fn linear_and_dynamic() {
    let linear = [
        0.25,
        0.079056941,
        0.0250000004,
        0.00790569466,
        0.00249999994,
        0.000790569466,
        0.000250000012,
        7.90569466e-05,
    ];
    let table = json!({"type": "linear", "factor": 4.0, "rope_theta": 10000.0});
    check(table, 16, 2048, &[1, 5000], &linear, 1.0);
    let table = json!({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0});
    let plain = [
        1.0,
        0.316227764,
        0.100000001,
        0.0316227786,
        0.00999999978,
        0.00316227786,
        0.00100000005,
        0.000316227786,
    ];
    check(table.clone(), 16, 64, &[0, 50, 64], &plain, 1.0);
    let stretched = [
        1.0,
        0.283945143,
        0.0806248412,
        0.0228930302,
        0.00650036521,
        0.001845747,
        0.000524090894,
        0.000148813066,
    ];
    check(table, 16, 64, &[100], &stretched, 1.0);
}

#[test]
fn llama3() {
    let expected = [
        1.0,
        0.440366626,
        0.193922758,
        0.0853971019,
        0.0376060307,
        0.0165604409,
        0.00729266508,
        0.00321144611,
        0.000429556705,
        1.94616387e-05,
        8.57025589e-06,
        3.77405445e-06,
        1.66196742e-06,
        7.31874934e-07,
        3.22293289e-07,
        1.41927202e-07,
    ];
    let table = json!({
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 500000.0
    });
    check(table, 32, 131_072, &[10, 100_000], &expected, 1.0);
}

#[test]
fn yarn() {
    let expected = [
        1.0,
        0.421696514,
        0.177827939,
        0.0749894157,
        0.0316227786,
        0.0133352149,
        0.00477990136,
        0.00165996165,
        0.000549999997,
        0.000168678584,
        4.44569851e-05,
        1.87473561e-05,
        7.90569356e-06,
        3.33380353e-06,
        1.40585337e-06,
        5.92843435e-07,
    ];
    let mut table = json!({
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1000000.0
    });
    check(table.clone(), 32, 131_072, &[1], &expected, 1.138629436111989);
    table["factor"] = Value::Null;
    check(table.clone(), 32, 131_072, &[1], &expected, 1.138629436111989);
    table["attention_factor"] = json!(0.5);
    check(table, 32, 131_072, &[1], &expected, 0.5);
}

#[test]
fn yarn_with_mscale_and_without_truncation() {
    let expected = [
        1.0,
        0.464158893,
        0.215443447,
        0.100000001,
        0.0388733,
        0.0145424344,
        0.00512499968,
        0.00162455637,
        0.000403956481,
        2.49999994e-05,
        1.16039737e-05,
        5.38608538e-06,
    ];
    let table = json!({
        "rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "beta_fast": 32,
        "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.8, "rope_theta": 10000.0
    });
    check(table, 24, 163_840, &[1], &expected, 1.0569662567531275);
    let expected = [
        1.0,
        0.225418001,
        0.0508132726,
        0.00679495931,
        0.000456483918,
        1.8188337e-05,
        4.09997847e-06,
        9.24208962e-07,
    ];
    let table = json!({
        "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0,
        "beta_slow": 1.0, "truncate": false, "rope_theta": 150000.0, "partial_rotary_factor": 0.8
    });
    check(table, 16, 131_072, &[1], &expected, 1.3465735902799727);
}

fn longrope() -> Value {
    json!({
        "type": "longrope", "short_factor": [1.0, 1.01, 1.05, 1.2, 1.4, 1.9],
        "long_factor": [1.0, 1.1, 2.0, 4.5, 10.25, 31.0], "original_max_position_embeddings": 4096,
        "rope_theta": 10000.0
    })
}

#[test]
fn longrope_of_short_and_long_sequences() {
    let short = [1.0, 0.213310361, 0.0442056023, 0.00833333284, 0.00153888157, 0.000244294206];
    let long = [1.0, 0.195857689, 0.023207942, 0.00222222228, 0.000210188708, 1.49728703e-05];
    check(longrope(), 12, 131_072, &[0, 4096], &short, 1.1902380714238083);
    check(longrope(), 12, 131_072, &[4097, 100_000], &long, 1.1902380714238083);
}

/// Phi-3 has the length of pretraining beside the table.
#[test]
fn a_length_beside_the_table_comes_first() {
    let original = |scaling| match scaling {
        Scaling::LongRope { original, .. } => original,
        other => panic!("{other:?}"),
    };
    assert_eq!(original(read(longrope(), 131_072, Some(2048)).unwrap().scaling), 2048);
    let mut table = longrope();
    table.as_object_mut().unwrap().remove("original_max_position_embeddings");
    assert_eq!(original(read(table, 8192, None).unwrap().scaling), 8192);
}

#[test]
fn tables_without_scaling() {
    let none = |table| read(table, 2048, None).unwrap();
    assert_eq!(none(json!({})), RopeParameters::default());
    let expected = RopeParameters { theta: Some(1e6), fraction: Some(0.5), scaling: Scaling::None };
    let table = json!({"rope_type": "default", "type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5, "factor": null});
    assert_eq!(none(table), expected);
}

#[test]
fn what_is_wrong_is_named() {
    let refused = |table: Value, said: &str| {
        let error = read(table.clone(), 2048, None).expect_err("refused");
        assert!(error.contains(said), "{table}: {error}");
    };
    refused(json!({"rope_type": "linear"}), "`factor` is missing");
    refused(json!({"rope_type": "linear", "factor": -1.0}), "`factor` is -1.0");
    refused(json!({"rope_type": "linear", "factor": 2.0, "beta_fast": 32}), "`beta_fast` = 32");
    refused(json!({"rope_type": "mrope"}), "`rope_type` is \"mrope\"");
    refused(
        json!({"rope_type": "linear", "type": "dynamic", "factor": 2.0}),
        "`rope_type` and `type` differ",
    );
    refused(json!({"mrope_section": [1, 2, 3]}), "`mrope_section`");
    refused(json!({"rope_type": "yarn", "factor": 2.0, "truncate": "no"}), "`truncate`");
    refused(
        json!({"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 0.5}),
        "`original_max_position_embeddings`",
    );
    let mut table = longrope();
    table["short_factor"] = json!("none");
    refused(table, "`short_factor` must be a list");
    let scaling = read(longrope(), 2048, None).unwrap().scaling;
    assert!(
        scaling
            .check(16)
            .unwrap_err()
            .contains("`short_factor` has 6 numbers; 16 turned elements of a head make 8")
    );
}
