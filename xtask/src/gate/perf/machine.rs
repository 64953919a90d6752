//! What the machine says of itself; nothing where it does not tell.

use crate::model::MachineStamp;

/// The machine before the run; [`finish`] adds what it is like after it.
pub fn begin() -> MachineStamp {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let governor =
        std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").ok();
    MachineStamp {
        processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
        model: values(&info, "model name").next().map(str::to_owned),
        governor: governor.map(|text| text.trim().to_owned()),
        mhz: [mean_mhz(&info), None],
        load: [load(), None],
    }
}

/// Adds frequency and load as they are now.
pub fn finish(stamp: &mut MachineStamp) {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    stamp.mhz[1] = mean_mhz(&info);
    stamp.load[1] = load();
}

/// The values of `key` in `/proc/cpuinfo`.
fn values<'a>(info: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    info.lines().filter_map(move |line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })
}

fn mean_mhz(info: &str) -> Option<f64> {
    let all: Vec<f64> = values(info, "cpu MHz")
        .filter_map(|mhz| mhz.parse().ok())
        .filter(|mhz: &f64| mhz.is_finite())
        .collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    load.is_finite().then_some(load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_are_averaged_where_there_are_any() {
        let info = "model name\t: Some CPU\ncpu MHz\t\t: 2000.0\n\ncpu MHz\t\t: 3000.5\n";
        assert_eq!(mean_mhz(info), Some(2500.25));
        assert_eq!(values(info, "model name").next(), Some("Some CPU"));
        assert_eq!(mean_mhz("processor\t: 0\n"), None);
    }
}
