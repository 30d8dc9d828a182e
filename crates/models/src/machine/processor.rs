//! Names of the processor and the hypervisor.

use super::sysfs::SysFiles;
use std::collections::BTreeSet;

/// The processor's model. Where cores differ in it, every model.
pub(super) fn model(tree: &SysFiles) -> Option<String> {
    let text = tree.text("proc/cpuinfo").unwrap_or_default();
    // x86, MIPS and RISC-V, POWER, s390: each kernel has its own names for it.
    let named = ["model name", "cpu model", "uarch", "cpu", "vendor_id"]
        .into_iter()
        .find_map(|key| Some(values(&text, key)).filter(|values| !values.is_empty()));
    let numbered = || {
        // ARM reports numbers only; the processor's name would need a list, as tools have.
        let implementers = values(&text, "CPU implementer");
        let parts = values(&text, "CPU part");
        if parts.is_empty() {
            None
        } else {
            Some(implementers.into_iter().chain(parts).collect::<Vec<_>>())
        }
    };
    let joined = |names: Vec<String>| names.join(" + ");
    named
        .map(joined)
        .or_else(|| numbered().map(|numbers| numbers.join(" ")))
        .or_else(|| tree.line("proc/device-tree/model"))
}

/// The values of a field, each once.
fn values(text: &str, key: &str) -> Vec<String> {
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        (name.trim() == key && !value.is_empty()).then(|| value.to_owned())
    };
    text.lines().filter_map(value).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the hypervisor below this machine; "a hypervisor" if its name is not known.
pub(super) fn hypervisor(tree: &SysFiles) -> Option<String> {
    let reported = tree
        .line("sys/hypervisor/type")
        .or_else(|| tree.line("proc/device-tree/hypervisor/compatible"));
    reported.or_else(|| by_clock(tree)).or_else(|| by_firmware(tree)).or_else(|| {
        let cpuinfo = tree.text("proc/cpuinfo").unwrap_or_default();
        let is_guest = values(&cpuinfo, "flags")
            .iter()
            .any(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
        is_guest.then(|| "a hypervisor".to_owned())
    })
}

/// Identifies the hypervisor by its paravirtual clock.
fn by_clock(tree: &SysFiles) -> Option<String> {
    let clocks = tree.line("sys/devices/system/clocksource/clocksource0/available_clocksource")?;
    let known = [("kvm-clock", "KVM"), ("hyperv", "Hyper-V"), ("xen", "Xen"), ("vmware", "VMware")];
    let offers = |start: &str| clocks.split_whitespace().any(|clock| clock.starts_with(start));
    known.into_iter().find(|(start, _)| offers(start)).map(|(_, name)| name.to_owned())
}

/// Identifies the hypervisor by the firmware.
fn by_firmware(tree: &SysFiles) -> Option<String> {
    let said = ["sys_vendor", "product_name"]
        .map(|file| tree.line(format!("sys/class/dmi/id/{file}")).unwrap_or_default());
    let known = [
        ("KVM", "KVM"),
        ("QEMU", "QEMU"),
        ("VMware", "VMware"),
        ("VirtualBox", "VirtualBox"),
        ("Virtual Machine", "Hyper-V"),
        ("Xen", "Xen"),
    ];
    let says = |word: &str| said.iter().any(|said| said.contains(word));
    known.into_iter().find(|(word, _)| says(word)).map(|(_, name)| name.to_owned())
}
