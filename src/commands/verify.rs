//! `runner verify`: this machine's arithmetic against reference values.

use std::path::PathBuf;

use clap::Args;
use miette::{IntoDiagnostic, Result, WrapErr, miette};

use super::SetArgs;
use crate::recipe::Setting;
use crate::run::{self, Results};
use crate::verify::{self, Check, Options, Record};

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Folder with golden.safetensors, or golden.json of a gradient scaler
    pub folder: PathBuf,
    /// Device that computes: cpu, cuda:0, or auto for the first GPU
    #[arg(long, default_value = "auto")]
    pub device: String,
    #[command(flatten)]
    pub settings: SetArgs,
    /// Largest absolute difference allowed, instead of the table's
    #[arg(long)]
    pub atol: Option<f64>,
    /// Save the outcome in this results folder: its report then names it for rows of this build and device
    #[arg(long, value_name = "RESULTS")]
    pub save: Option<PathBuf>,
}

/// The verdict as text, and whether all passes.
///
/// # Errors
/// When the reference cannot be read, the device is among the settings, or the outcome cannot be kept.
pub fn verify(args: &VerifyArgs) -> Result<(String, bool)> {
    if let Some(results) = &args.save {
        Results::open(results)?;
    }
    // The last of several settings counts, and the record has the device of --device.
    if args.settings.set.iter().any(|setting| setting.key() == "device") {
        return Err(miette!(help = "write --device", "`runner verify` takes no --set device"));
    }
    if let Some(atol) = args.atol.filter(|atol| !(atol.is_finite() && *atol >= 0.0)) {
        return Err(miette!(
            help = "write a number of 0 or more: 1e-5",
            "--atol {atol} allows no difference"
        ));
    }
    let mut settings = vec![Setting::new("device", args.device.as_str())];
    settings.extend(args.settings.set.iter().cloned());
    let checks = verify::verify(&args.folder, &Options { settings, atol: args.atol })?;
    let mut text = verify::table(&checks);
    if let Some(results) = &args.save {
        let failed = || format!("cannot keep the outcome in {}", results.display());
        Record::add(results, vec![record(args, &checks)?]).into_diagnostic().wrap_err_with(failed)?;
        text += &format!("\nkept for the report: runner report {}", results.display());
    }
    Ok((text, verify::passes(&checks)))
}

fn record(args: &VerifyArgs, checks: &[Check]) -> Result<Record> {
    let device = super::device(&args.device)?;
    let folder = std::fs::canonicalize(&args.folder).unwrap_or_else(|_| args.folder.clone());
    let environment = run::without_ceilings(device.info());
    let mut settings: Vec<String> = args.settings.set.iter().map(ToString::to_string).collect();
    settings.extend(args.atol.map(|atol| format!("--atol {atol}")));
    let (passed, of) = verify::count(checks);
    Ok(Record {
        reference: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        settings,
        device: environment.device.name,
        build: environment.build,
        commit: environment.commit,
        date: environment.date,
        passed,
        of,
    })
}
