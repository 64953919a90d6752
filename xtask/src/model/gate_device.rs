//! What a gate's servers compute on.

use serde::Deserialize;

/// What a gate's servers compute on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateBackend {
    /// Processors: always there.
    #[default]
    Cpu,
    /// A GPU, by Vulkan.
    Vulkan,
    /// A GPU of NVIDIA's.
    Cuda,
}

impl GateBackend {
    /// All of them.
    pub const ALL: [Self; 3] = [GateBackend::Cpu, GateBackend::Vulkan, GateBackend::Cuda];

    /// Its name, as builds have it.
    pub fn name(self) -> &'static str {
        match self {
            GateBackend::Cpu => "cpu",
            GateBackend::Vulkan => "vulkan",
            GateBackend::Cuda => "cuda",
        }
    }

    /// What llama.cpp calls its devices, without their numbers; `None` for processors.
    pub fn device(self) -> Option<&'static str> {
        match self {
            GateBackend::Cpu => None,
            GateBackend::Vulkan => Some("Vulkan"),
            GateBackend::Cuda => Some("CUDA"),
        }
    }
}

/// Which of a backend's devices the servers get, and what must be found to have run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GateDevice {
    /// The Vulkan driver that alone is loaded, as its manifest is called: `lvp` for
    /// `lvp_icd.x86_64.json`. It may be one for processors, which is otherwise passed over.
    pub driver: Option<String>,
    /// Number of the device among those of the driver, or of all drivers. Without one, and without a
    /// driver, llama.cpp takes the first that is a GPU.
    pub index: Option<u32>,
    /// What the device's own name must contain.
    pub name: Option<String>,
}
