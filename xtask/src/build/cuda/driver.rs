//! The GPUs of this machine and their driver.

use crate::build::lookup::Lookup;
use crate::error::{Error, Result};
use crate::model::{CudaArchs, CudaTools, Version};

/// What is asked of `nvidia-smi`.
const QUESTION: [&str; 2] = [
    "--query-gpu=compute_cap,driver_version",
    "--format=csv,noheader",
];

/// The GPUs that `nvidia-smi` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpus {
    /// What they are.
    pub archs: CudaArchs,
    /// Their driver.
    pub driver: Version,
}

/// Looks for GPUs; `None` where the driver names none.
pub fn gpus(lookup: &dyn Lookup) -> Option<Gpus> {
    let program = lookup.find("nvidia-smi")?;
    let text = lookup.output(&program, &QUESTION)?;
    let rows: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.split_once(','))
        .collect();
    let archs = CudaArchs::of_capabilities(rows.iter().map(|(capability, _)| *capability))?;
    let driver = Version::find(rows.first()?.1)?;
    Some(Gpus { archs, driver })
}

/// Fails where the driver of this machine is too old to run what `toolkit` built. Where there is no
/// GPU, nothing is said: that is somebody else's to say.
pub fn runs(lookup: &dyn Lookup, wanted: &CudaTools, toolkit: &Version) -> Result<()> {
    match gpus(lookup) {
        Some(gpus) => fits(wanted, toolkit, &gpus.driver),
        None => Ok(()),
    }
}

/// Fails where `driver` is too old for `toolkit`.
pub fn fits(wanted: &CudaTools, toolkit: &Version, driver: &Version) -> Result<()> {
    match wanted.driver_for(toolkit) {
        Some(needed) if driver < needed => Err(Error::environment(format!(
            "CUDA {toolkit} is too new for the driver {driver} of this machine: at least {needed} is \
             needed to run what it builds"
        ))
        .hint("update the driver, or build with an older toolkit: CUDA_PATH=/usr/local/cuda-12")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::lookup::fake::Fake;
    use crate::build::tools::tests::committed;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn gpus_are_what_the_driver_says() {
        let none = Fake::complete();
        assert_eq!(gpus(&none), None);
        let machine = none
            .clone()
            .with("nvidia-smi", "9.0, 580.95.05\n8.9, 580.95.05\n");
        let found = gpus(&machine).unwrap();
        assert_eq!(found.archs.to_string(), "89;90");
        assert_eq!(found.driver, version("580.95.5"));
        for text in ["", "No devices were found\n", "[N/A], 580.1\n", "9.0\n"] {
            assert_eq!(gpus(&none.clone().with("nvidia-smi", text)), None, "{text}");
        }
    }

    #[test]
    fn a_driver_that_is_older_than_the_toolkit_is_told_with_both_versions() {
        let wanted = committed().cuda;
        let old = Fake::complete().with("nvidia-smi", "9.0, 535.104.05\n");
        runs(&old, &wanted, &version("12.9.41")).unwrap();
        let error = runs(&old, &wanted, &version("13.0.88")).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Environment);
        for part in ["CUDA 13.0.88", "driver 535.104.5", "at least 580.65.6"] {
            assert!(error.message().contains(part), "{part}: {error}");
        }
        // Without a GPU nothing is run.
        runs(&Fake::complete(), &wanted, &version("13.0.88")).unwrap();
    }

    #[test]
    fn a_toolkit_of_after_the_registry_needs_at_least_the_newest_driver_that_is_known() {
        let mut wanted = committed().cuda;
        let on = |wanted: &CudaTools, driver: &str, toolkit: &str| {
            let machine = Fake::complete().with("nvidia-smi", &format!("9.0, {driver}\n"));
            runs(&machine, wanted, &version(toolkit))
        };
        for toolkit in ["14.0", "14", "99.0.1", "100.2"] {
            let error = on(&wanted, "535.104.05", toolkit).unwrap_err();
            assert!(error.message().contains("at least 580.65.6"), "{error}");
            on(&wanted, "580.95.05", toolkit).unwrap();
        }
        // One of before it is not judged, and the numbers are no text: 100 is after 13.
        on(&wanted, "390.1", "10.2").unwrap();
        wanted.driver.insert("100".to_owned(), version("900.1"));
        on(&wanted, "580.95.05", "99.0").unwrap();
        let error = on(&wanted, "580.95.05", "100.2").unwrap_err();
        assert!(error.message().contains("at least 900.1"), "{error}");
    }
}
