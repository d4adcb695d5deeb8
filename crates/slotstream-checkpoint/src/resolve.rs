//! Joins what the headers hold with what the config asks for.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use slotstream_core::{Extent, FileId};

use crate::checkpoint::TensorInfo;
use crate::names::{canonical, is_draft, is_vision, layer_of};
use crate::schema::{ExpectedTensor, expected_tensors};
use crate::shards::Shard;
use crate::{CheckpointError, Header, TensorClass, TextConfig};

/// Every tensor with its place and purpose.
pub(crate) struct Tensors {
    pub(crate) tensors: Vec<TensorInfo>,
    /// Unit of each tensor within its class.
    pub(crate) units: Vec<u32>,
    pub(crate) by_name: HashMap<String, usize>,
    pub(crate) by_file: Vec<Vec<usize>>,
}

/// Where a tensor was found, before its purpose is known.
struct Found {
    info: TensorInfo,
    file: usize,
    purpose: Option<(TensorClass, u32)>,
}

pub(crate) fn resolve(
    folder: &Path,
    config: &TextConfig,
    shards: &[Shard],
    headers: Vec<Header>,
) -> Result<Tensors, CheckpointError> {
    for (shard, header) in shards.iter().zip(&headers) {
        check_index(shard, header)?;
    }
    let (mut found, by_name) = collect(shards, headers)?;
    check_layers(config, &by_name)?;
    let expected = expected_tensors(config)?;
    check_complete(folder, &expected, &by_name)?;
    check_overrides_match(config, &by_name)?;
    for want in &expected {
        if let Some(i) = by_name.get(&want.name) {
            let Found { info, file, purpose } = &mut found[*i];
            check_tensor(&shards[*file].path, info, want)?;
            *purpose = Some((want.class, want.unit));
        }
    }
    assign_optional(folder, &mut found)?;
    check_overrides_used(config, &expected)?;
    let mut by_file = vec![Vec::new(); shards.len()];
    let (mut tensors, mut units) = (Vec::new(), Vec::new());
    for (i, Found { mut info, file, purpose }) in found.into_iter().enumerate() {
        by_file[file].push(i);
        if let Some((class, unit)) = purpose {
            info.class = class;
            units.push(unit);
        }
        tensors.push(info);
    }
    Ok(Tensors { tensors, units, by_name, by_file })
}

/// Index and header of a file must name the same tensors.
fn check_index(shard: &Shard, header: &Header) -> Result<(), CheckpointError> {
    let Some(indexed) = &shard.indexed else { return Ok(()) };
    let held: HashSet<&str> = header.tensors.iter().map(|t| t.name.as_str()).collect();
    let absent: Vec<_> =
        indexed.iter().filter(|name| !held.contains(name.as_str())).cloned().collect();
    if !absent.is_empty() {
        let path = shard.path.clone();
        return Err(CheckpointError::NotInShard { path, tensors: absent });
    }
    let mut extra: Vec<_> =
        held.into_iter().filter(|name| !indexed.contains(*name)).map(str::to_owned).collect();
    extra.sort_unstable();
    if !extra.is_empty() {
        let path = shard.path.clone();
        return Err(CheckpointError::NotInIndex { path, tensors: extra });
    }
    Ok(())
}

/// All tensors by canonical name; a name may appear once.
fn collect(
    shards: &[Shard],
    headers: Vec<Header>,
) -> Result<(Vec<Found>, HashMap<String, usize>), CheckpointError> {
    let mut found: Vec<Found> = Vec::new();
    let mut by_name = HashMap::new();
    for (file, header) in headers.into_iter().enumerate() {
        let path = &shards[file].path;
        // ShardList holds at most u16::MAX files.
        let id = FileId::new(u16::try_from(file).unwrap_or(u16::MAX));
        for tensor in header.tensors {
            let offset = header.data_start.saturating_add(tensor.begin);
            let extent = Extent::new(id, offset, tensor.end - tensor.begin)
                .map_err(|e| CheckpointError::shape(path, e))?;
            if let Some(first) = by_name.insert(canonical(&tensor.name).to_owned(), found.len()) {
                return Err(CheckpointError::DuplicateTensor {
                    tensor: tensor.name,
                    first: shards[found[first].file].path.clone(),
                    second: path.clone(),
                });
            }
            let (name, dtype, shape) = (tensor.name, tensor.dtype, tensor.shape);
            let class = TensorClass::VisionTower;
            let info = TensorInfo { name, dtype, shape, extent, class };
            found.push(Found { info, file, purpose: None });
        }
    }
    Ok((found, by_name))
}

fn check_layers(
    config: &TextConfig,
    by_name: &HashMap<String, usize>,
) -> Result<(), CheckpointError> {
    let highest = by_name.keys().filter_map(|name| layer_of(name)).max();
    let found = highest.map_or(0, |layer| layer.saturating_add(1));
    let expected = config.num_hidden_layers;
    if found == expected {
        return Ok(());
    }
    Err(CheckpointError::LayerCount { path: config.path.clone(), expected, found })
}

fn check_complete(
    folder: &Path,
    expected: &[ExpectedTensor],
    by_name: &HashMap<String, usize>,
) -> Result<(), CheckpointError> {
    for want in expected {
        for part in ["scales", "biases"] {
            if let Some(module) = want.name.strip_suffix(part).and_then(|m| m.strip_suffix('.'))
                && !by_name.contains_key(&want.name)
                && by_name.contains_key(&format!("{module}.weight"))
            {
                let (folder, module) = (folder.into(), module.to_owned());
                return Err(CheckpointError::IncompleteModule { folder, module, part });
            }
        }
    }
    let missing = expected.iter().map(|want| &want.name);
    let missing: Vec<_> = missing.filter(|name| !by_name.contains_key(*name)).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(CheckpointError::MissingTensors { folder: folder.into(), tensors: missing })
}

/// An override that matches nothing would be silently lost, and the module read in a format that
/// it does not have.
fn check_overrides_match(
    config: &TextConfig,
    by_name: &HashMap<String, usize>,
) -> Result<(), CheckpointError> {
    let mut modules = config.quantization.overrides.keys();
    match modules.find(|module| !by_name.contains_key(&format!("{module}.weight"))) {
        None => Ok(()),
        Some(module) => Err(unused(config, module, "matches no module: no tensor has that name")),
    }
}

/// An override of a module that is not quantized would change nothing either.
fn check_overrides_used(
    config: &TextConfig,
    expected: &[ExpectedTensor],
) -> Result<(), CheckpointError> {
    let quantized: HashSet<&str> =
        expected.iter().filter_map(|want| want.name.strip_suffix(".scales")).collect();
    let unused_one = config.quantization.overrides.iter().find(|(module, format)| {
        let optional = is_vision(module) || is_draft(module);
        format.is_some() && !optional && !quantized.contains(module.as_str())
    });
    match unused_one {
        None => Ok(()),
        Some((module, _)) => Err(unused(config, module, "names a module that is not quantized")),
    }
}

fn unused(config: &TextConfig, module: &str, reason: &'static str) -> CheckpointError {
    let (path, module) = (config.path.clone(), module.to_owned());
    CheckpointError::OverrideUnused { path, module, reason }
}

fn check_tensor(
    path: &Path,
    info: &TensorInfo,
    want: &ExpectedTensor,
) -> Result<(), CheckpointError> {
    if !want.dtype.accepts(info.dtype) {
        return Err(CheckpointError::TensorDtype {
            path: path.into(),
            tensor: info.name.clone(),
            found: info.dtype.name(),
            expected: want.dtype.describe(),
        });
    }
    if info.shape != want.shape {
        return Err(CheckpointError::TensorShape {
            path: path.into(),
            tensor: info.name.clone(),
            found: info.shape.clone(),
            expected: want.shape.clone(),
        });
    }
    Ok(())
}

/// Vision tower and draft head are known and not loaded; anything else would be ignored silently.
fn assign_optional(folder: &Path, found: &mut [Found]) -> Result<(), CheckpointError> {
    let mut unmapped = Vec::new();
    for (i, tensor) in (0_u32..).zip(found.iter_mut()) {
        if tensor.purpose.is_some() {
            continue;
        }
        let name = tensor.info.canonical_name();
        if is_vision(name) {
            tensor.purpose = Some((TensorClass::VisionTower, i));
        } else if is_draft(name) {
            tensor.purpose = Some((TensorClass::DraftHead, i));
        } else {
            unmapped.push(tensor.info.name.clone());
        }
    }
    if unmapped.is_empty() {
        return Ok(());
    }
    unmapped.sort_unstable();
    Err(CheckpointError::UnmappedTensors { folder: folder.into(), tensors: unmapped })
}
