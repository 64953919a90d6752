//! The files of the project as types, each in the module of its name. No behaviour beyond
//! reading, writing and checking themselves. What one room alone writes and reads again (the
//! request to CMake, the cache's index) stays in that room.

mod build;
mod cuda;
mod digest;
mod fixture;
mod gate;
mod gate_acceptance;
mod gate_checks;
mod gate_counters;
mod gate_device;
mod gate_drafts;
mod gate_logits;
mod gate_perf;
mod gate_record;
mod gate_retrieval;
mod gate_side;
mod goldens;
mod hooks;
mod host;
mod io;
mod patch;
mod perf_record;
mod provenance;
mod retired;
mod run_record;
mod series;
mod state;
mod surroundings;
mod toolchain;
mod upstreams;
mod variant;
mod verdict;

pub use build::{Artifact, BuildManifest, Compiler, Flavour, PatchSetStamp};
pub use cuda::{CudaArch, CudaArchs, CudaTools, CudaWheel};
pub use digest::Digest;
pub use fixture::{Fixture, Fixtures};
pub use gate::{
    ChashGate, DraftModel, GateHeader, GateKind, GateLimits, GeneratedPrompt, MessageDefinition,
    ModelSource, PromptDefinition, QuickSubset, Role,
};
pub use gate_acceptance::{
    AcceptanceGate, AcceptanceQuick, AcceptanceRecord, PositionRecord, PositionShare, ShareRecord,
};
pub use gate_checks::{ArtifactsAllow, ArtifactsGate, CheckRecord, IntegrityGate};
pub use gate_counters::{Bound, CountersGate, CountersQuick};
pub use gate_device::{GateBackend, GateDevice};
pub use gate_drafts::{DraftsGate, DraftsQuick, DraftsSetting};
pub use gate_logits::{
    Flash, LogitsAllow, LogitsDifference, LogitsGate, LogitsQuick, LogitsRecord, LogitsSetting,
    ProbeStamp, RowDifference,
};
pub use gate_perf::{Metric, PERF_BLOCKS, PERF_ROUNDS, PerfGate, PerfQuick, Relation};
pub use gate_record::{
    AnswerRecord, CellRecord, GateRecord, ModelStamp, PlainRecord, PromptStamp, SideStamp,
    TokenDifference,
};
pub use gate_retrieval::{MadeUp, RetrievalGate, RetrievalQuick, RetrievalRecord};
pub use gate_side::{GateSetting, SideDefinition};
pub use goldens::{Golden, GoldenRecord, Goldens};
pub use hooks::{HookEntry, HooksFile, ImageEntry};
pub use host::{Host, HostKey, HostsFile};
pub use io::{json_bytes, parse_toml, read_json, read_toml, write_atomic, write_json};
pub use patch::{Allow, PatchManifest, Probes, SWITCH_PREFIX, SaysWhen, SwitchLog};
pub use perf_record::{
    ChangeRecord, CounterRecord, MachineStamp, MetricRecord, PerfRecord, RoundRecord, SideSamples,
};
pub use provenance::Provenance;
pub use retired::{Retired, RetiredPatch};
pub use run_record::{HostStamp, RunRecord, RunStamp, SkippedGate};
pub use series::SeriesFile;
pub use state::{TrackedFile, TreeState};
pub use surroundings::{RUSTC, Surroundings};
pub use toolchain::{
    Compilers, DebianPackage, Launcher, Tool, Toolchains, Version, VulkanTools, Wheel,
};
pub use upstreams::{
    Base, CratesSource, DirSource, GitSource, PypiSource, Source, TarballSource, Upstreams,
};
pub use variant::{Libraries, Processors, Profile, Variant};
pub use verdict::Verdict;
