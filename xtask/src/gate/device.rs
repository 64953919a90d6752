//! The device that a side computes on: chosen before its server starts, and proven afterwards.
//!
//! A backend that finds no device runs on processors and says little of it; the Vulkan backend passes
//! over drivers for processors in silence. What such a run gives is right, and of something else. So
//! the server is told the device by name, which it refuses where it does not see it, and its log must
//! say that it took that device, how the device calls itself, and that all layers lie on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::build::cuda::driver;
use crate::error::{Error, Result};
use crate::model::{ChashGate, GateBackend, GateDevice, SideDefinition};

/// What a server needs and must have done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// As llama.cpp calls it: `Vulkan0`.
    pub id: String,
    /// Variables that leave only this one to be seen.
    pub env: BTreeMap<String, String>,
    /// What its own name must contain.
    name: Option<String>,
}

/// What a side computes on.
pub fn backend(gate: &ChashGate, side: &SideDefinition) -> GateBackend {
    side.backend.unwrap_or(gate.backend)
}

/// All that the two sides compute on, each once.
pub fn backends(gate: &ChashGate) -> Vec<GateBackend> {
    let mut list = vec![backend(gate, &gate.baseline)];
    let other = backend(gate, &gate.candidate);
    if !list.contains(&other) {
        list.push(other);
    }
    list
}

impl Device {
    /// The device of `side`; `None` where it computes on processors. A driver that is not there is
    /// an error of the machine.
    pub fn of(gate: &ChashGate, side: &SideDefinition) -> Result<Option<Self>> {
        Self::find(backend(gate, side), &gate.device)
    }

    /// The device that is wanted of `backend`; `None` for processors.
    pub fn find(backend: GateBackend, wanted: &GateDevice) -> Result<Option<Self>> {
        Self::new(backend, wanted, &folders())
    }

    fn new(backend: GateBackend, wanted: &GateDevice, folders: &[PathBuf]) -> Result<Option<Self>> {
        let Some(kind) = backend.device() else {
            return Ok(None);
        };
        let mut env = BTreeMap::new();
        if let Some(driver) = &wanted.driver {
            let Some(file) = manifest(driver, folders) else {
                let (reason, hint) = no_driver(driver);
                return Err(Error::environment(reason).hint(hint));
            };
            let file = file.display().to_string();
            // The second is what older loaders read.
            env.insert("VK_DRIVER_FILES".to_owned(), file.clone());
            env.insert("VK_ICD_FILENAMES".to_owned(), file);
        }
        if wanted.driver.is_some() || wanted.index.is_some() {
            let index = wanted.index.unwrap_or(0).to_string();
            let name = match backend {
                GateBackend::Cuda => {
                    // Else the number is one by speed, and nobody knows which GPU that is.
                    env.insert(driver::ORDER.to_owned(), driver::BY_BUS.to_owned());
                    driver::VISIBLE
                }
                _ => "GGML_VK_VISIBLE_DEVICES",
            };
            env.insert(name.to_owned(), index);
        }
        Ok(Some(Device {
            // The only one that it sees is its first.
            id: format!("{kind}0"),
            env,
            name: wanted.name.clone(),
        }))
    }

    /// Flags of the server: the device, and that it says what it does with it.
    pub fn flags(&self) -> [&str; 4] {
        ["--device", &self.id, "-lv", "4"]
    }

    /// How the device calls itself, where `log` proves that it ran; a finding where it does not.
    pub fn proof(&self, log: &str) -> Result<String> {
        let fail = |what: String| {
            Err(Error::finding(format!(
                "the server was to compute on {}, and {what}",
                self.id
            ))
            .hint("nothing can be said of that device: see the server's log")
            .hint("take flags that choose devices, layers or the log's detail out of the gate's definition"))
        };
        let mut devices = log.lines().filter_map(used);
        let Some((id, name)) = devices.next() else {
            return fail("its log does not say that it did".to_owned());
        };
        if id != self.id {
            return fail(format!("it took {id} ({name})"));
        }
        if let Some((other, name)) = devices.find(|(other, _)| *other != self.id) {
            return fail(format!("it took {other} ({name}) too"));
        }
        if let Some(wanted) = &self.name
            && !name.contains(&**wanted)
        {
            return fail(format!(
                "that is `{name}`, where the definition wants `{wanted}`"
            ));
        }
        let layers: Vec<(u32, u32)> = log.lines().filter_map(offloaded).collect();
        match layers.iter().find(|(there, all)| there != all || *all == 0) {
            None if layers.is_empty() => {
                return fail("its log does not say which layers lie on it".to_owned());
            }
            Some((there, all)) => {
                return fail(format!("only {there} of {all} layers lie on it"));
            }
            None => {}
        }
        for what in ["model", "compute"] {
            let bytes = log.lines().filter_map(|line| buffer(line, &self.id, what));
            if bytes.sum::<f64>() <= 0.0 {
                return fail(format!("it has no {what} buffer there"));
            }
        }
        Ok(name.to_owned())
    }
}

/// Device and its own name in a line such as
/// `using device Vulkan0 (llvmpipe (LLVM 15, 256 bits)) (unknown id) - 900 MiB free`.
fn used(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once("using device ")?;
    let (id, rest) = rest.split_once(" (")?;
    let (names, _) = rest.rsplit_once(" - ")?;
    // Newer trees add where it is plugged in.
    let name = match names.rsplit_once(") (") {
        Some((name, _)) => name,
        None => names.strip_suffix(')')?,
    };
    Some((id, name))
}

/// `offloaded 5/5 layers to GPU`.
fn offloaded(line: &str) -> Option<(u32, u32)> {
    let (_, rest) = line.split_once("offloaded ")?;
    let (numbers, _) = rest.split_once(" layers to GPU")?;
    let (there, all) = numbers.split_once('/')?;
    Some((there.parse().ok()?, all.parse().ok()?))
}

/// MiB in `   Vulkan0 model buffer size =    13.00 MiB`.
fn buffer(line: &str, id: &str, what: &str) -> Option<f64> {
    let (before, after) = line.split_once(&format!(" {what} buffer size ="))?;
    let owner = before.rsplit([' ', ':']).next()?;
    if owner != id {
        return None;
    }
    after.split_whitespace().next()?.parse().ok()
}

/// Why there is no such driver, and what to do.
pub fn no_driver(driver: &str) -> (String, String) {
    let hint = match driver {
        "lvp" => {
            "install Mesa's lavapipe; on Debian and Ubuntu: sudo apt-get install \
                  mesa-vulkan-drivers"
        }
        _ => "install it, or mend `device` in the gate's definition",
    };
    (
        format!("this machine has no Vulkan driver `{driver}`"),
        hint.to_owned(),
    )
}

/// Whether the driver is there.
pub fn has_driver(driver: &str) -> bool {
    manifest(driver, &folders()).is_some()
}

/// The manifest `<driver>_icd*.json` in `folders`: that of this machine's architecture, where there
/// are several.
fn manifest(driver: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut here: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        here.sort();
        found.extend(here.into_iter().filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.strip_prefix(driver)
                .is_some_and(|rest| rest.starts_with("_icd") && rest.ends_with(".json"))
        }));
    }
    let own = format!("_icd.{}.json", std::env::consts::ARCH);
    let is_own = |path: &&PathBuf| path.to_string_lossy().ends_with(&own);
    found.iter().find(is_own).or(found.first()).cloned()
}

/// Where the Vulkan loader looks for drivers, in its order.
fn folders() -> Vec<PathBuf> {
    let var = |name: &str, default: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        let value = value.unwrap_or_else(|| default.into());
        std::env::split_paths(&value).collect::<Vec<_>>()
    };
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let of_home = |rest: &str| home.iter().map(|home| home.join(rest)).collect::<Vec<_>>();
    let all = [
        of_home(".config"),
        var("XDG_CONFIG_DIRS", "/etc/xdg"),
        vec![PathBuf::from("/etc")],
        of_home(".local/share"),
        var("XDG_DATA_DIRS", "/usr/local/share:/usr/share"),
        vec![PathBuf::from("/usr/share")],
    ];
    let mut list: Vec<PathBuf> = Vec::new();
    for folder in all.concat() {
        let folder = folder.join(Path::new("vulkan/icd.d"));
        if !list.contains(&folder) {
            list.push(folder);
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    const LOG: &str = "\
0.00 I srv load_model: loading model
0.01 I llama_prepare_model_devices: using device Vulkan0 (llvmpipe (LLVM 15.0.6, 256 bits)) (0000:00:00.0) - 24035 MiB free
0.02 I load_tensors: offloading output layer to GPU
0.02 I load_tensors: offloaded 6/6 layers to GPU
0.02 I load_tensors:      Vulkan0 model buffer size =    13.00 MiB
0.02 I load_tensors:   CPU_Mapped model buffer size =     0.50 MiB
0.03 I sched_reserve:    Vulkan0 compute buffer size =    1.25 MiB
";

    fn device(name: Option<&str>) -> Device {
        Device {
            id: "Vulkan0".to_owned(),
            env: BTreeMap::new(),
            name: name.map(str::to_owned),
        }
    }

    #[test]
    fn a_log_that_names_the_device_is_a_proof() {
        let name = device(Some("llvmpipe")).proof(LOG).unwrap();
        assert_eq!(name, "llvmpipe (LLVM 15.0.6, 256 bits)");
        let older = LOG.replace(" (0000:00:00.0)", "");
        assert_eq!(device(None).proof(&older).unwrap(), name);
    }

    /// Each of them is what a run on something else would say.
    #[test]
    fn what_ran_elsewhere_is_a_finding() {
        let without = |part: &str| -> String {
            let lines = LOG.lines().filter(|line| !line.contains(part));
            lines.map(|line| format!("{line}\n")).collect()
        };
        for (log, says) in [
            (String::new(), "does not say that it did"),
            (without("using device"), "does not say that it did"),
            (
                LOG.replace("device Vulkan0", "device CUDA0"),
                "it took CUDA0",
            ),
            (
                format!("{LOG}1 I x: using device Vulkan1 (a) - 1 MiB free\n"),
                "it took Vulkan1 (a) too",
            ),
            (LOG.replace("6/6", "0/6"), "only 0 of 6 layers"),
            (LOG.replace("6/6", "5/6"), "only 5 of 6 layers"),
            (without("offloaded"), "which layers lie on it"),
            (without("Vulkan0 model"), "no model buffer"),
            (LOG.replace("13.00", "0.00"), "no model buffer"),
            (without("Vulkan0 compute"), "no compute buffer"),
            (
                LOG.replace("llvmpipe", "NVIDIA"),
                "the definition wants `llvmpipe`",
            ),
        ] {
            let error = device(Some("llvmpipe")).proof(&log).unwrap_err();
            assert_eq!(error.kind(), Kind::Finding);
            assert!(error.message().contains(says), "{says}: {error}");
        }
    }

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            fs_err::write(dir.path().join(name), "{}").unwrap();
        }
        dir
    }

    #[test]
    fn one_driver_alone_is_left_to_be_seen() {
        let own = format!("lvp_icd.{}.json", std::env::consts::ARCH);
        let dir = folder(&["lvp_icd.aaa.json", &own, "intel_icd.json", "lvp_icd.txt"]);
        let folders = [PathBuf::from("/nonexistent"), dir.path().to_path_buf()];
        let wanted = GateDevice {
            driver: Some("lvp".to_owned()),
            index: None,
            name: None,
        };
        let device = Device::new(GateBackend::Vulkan, &wanted, &folders);
        let device = device.unwrap().unwrap();
        let file = dir.path().join(own).display().to_string();
        assert_eq!(device.env["VK_DRIVER_FILES"], file);
        assert_eq!(device.env["VK_ICD_FILENAMES"], file);
        assert_eq!(device.env["GGML_VK_VISIBLE_DEVICES"], "0");
        assert_eq!(device.flags(), ["--device", "Vulkan0", "-lv", "4"]);

        let error = Device::new(GateBackend::Vulkan, &wanted, &folders[..1]).unwrap_err();
        assert_eq!(error.kind(), Kind::Environment);
        assert!(error.message().contains("no Vulkan driver `lvp`"));
        assert!(error.hints()[0].contains("mesa-vulkan-drivers"));
    }

    #[test]
    fn without_a_wish_the_backend_chooses() {
        let any = GateDevice::default();
        assert_eq!(Device::new(GateBackend::Cpu, &any, &[]).unwrap(), None);
        let device = Device::new(GateBackend::Cuda, &any, &[]).unwrap().unwrap();
        assert_eq!((&*device.id, device.env.len()), ("CUDA0", 0));
        let second = GateDevice {
            index: Some(1),
            ..GateDevice::default()
        };
        let device = Device::new(GateBackend::Cuda, &second, &[])
            .unwrap()
            .unwrap();
        // The only one that it sees is its first.
        assert_eq!(
            (&*device.id, &*device.env["CUDA_VISIBLE_DEVICES"]),
            ("CUDA0", "1")
        );
        assert_eq!(device.env["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
    }
}
