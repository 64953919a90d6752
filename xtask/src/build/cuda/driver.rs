//! The GPUs of this machine and their driver.

use crate::build::lookup::Lookup;
use crate::error::{Error, Result};
use crate::model::{CudaArch, CudaArchs, CudaTools, Version};

/// What is asked of `nvidia-smi`.
const QUESTION: [&str; 2] = [
    "--query-gpu=compute_cap,driver_version",
    "--format=csv,noheader",
];

/// The variable that says in which order CUDA counts GPUs, and that which says which of them it sees.
pub const ORDER: &str = "CUDA_DEVICE_ORDER";
/// See [`ORDER`].
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// The order of [`ORDER`] in which `nvidia-smi` counts them.
pub const BY_BUS: &str = "PCI_BUS_ID";

/// The GPUs that `nvidia-smi` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpus {
    /// What they are.
    pub archs: CudaArchs,
    /// Each of them, in the order of their places on the bus, in which it numbers them.
    pub list: Vec<CudaArch>,
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
    let one = |(capability, _): &(&str, &str)| {
        let arch = CudaArchs::of_capabilities([*capability])?;
        arch.iter().next().cloned()
    };
    let list = rows.iter().map(one).collect::<Option<_>>()?;
    let driver = Version::find(rows.first()?.1)?;
    Some(Gpus {
        archs,
        list,
        driver,
    })
}

impl Gpus {
    /// The number of the GPU that is CUDA's first where these variables are set, if that can be told: by itself CUDA counts
    /// the fastest first, and only with `PCI_BUS_ID` as here.
    pub fn first(&self, var: &dyn Fn(&str) -> Option<String>) -> Option<usize> {
        let is_by_bus = var(ORDER).is_some_and(|order| order.trim() == BY_BUS);
        if !is_by_bus {
            return None;
        }
        let number = match var(VISIBLE) {
            None => 0,
            // A name in the place of a number (`GPU-…`) is not known here.
            Some(list) => list.split(',').next()?.trim().parse().ok()?,
        };
        (number < self.list.len()).then_some(number)
    }
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
        let list: Vec<String> = found.list.iter().map(CudaArch::name).collect();
        assert_eq!(list, ["90", "89"]);
        assert_eq!(found.driver, version("580.95.5"));
        for text in ["", "No devices were found\n", "[N/A], 580.1\n", "9.0\n"] {
            assert_eq!(gpus(&none.clone().with("nvidia-smi", text)), None, "{text}");
        }
    }

    #[test]
    fn the_first_gpu_is_known_where_cuda_counts_as_the_driver_does() {
        let machine = Fake::complete().with("nvidia-smi", "9.0, 580.1\n8.9, 580.1\n");
        let gpus = gpus(&machine).unwrap();
        let first = |order: Option<&str>, visible: Option<&str>| {
            gpus.first(&|name| match name {
                ORDER => order.map(str::to_owned),
                VISIBLE => visible.map(str::to_owned),
                _ => None,
            })
        };
        for (order, visible, number) in [
            (None, None, None),
            (None, Some("1"), None),
            (Some("FASTEST_FIRST"), Some("1"), None),
            (Some(BY_BUS), None, Some(0)),
            (Some(BY_BUS), Some("1"), Some(1)),
            (Some(BY_BUS), Some(" 1,0"), Some(1)),
            (Some(BY_BUS), Some("2"), None),
            (Some(BY_BUS), Some("-1"), None),
            (Some(BY_BUS), Some("GPU-8932f937"), None),
        ] {
            assert_eq!(first(order, visible), number, "{order:?} {visible:?}");
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
