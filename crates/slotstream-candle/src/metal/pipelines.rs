//! Compiled kernels.

use std::collections::HashMap;

use candle_core::MetalDevice;
use candle_metal_kernels::MetalKernelError;
use candle_metal_kernels::metal::{ComputePipeline, Library as Compiled};
use objc2_metal::{MTLCompileOptions, MTLLanguageVersion, MTLMathMode};
use parking_lot::Mutex;
use slotstream_kernels::metal::Library;

use crate::Error;

/// Libraries and pipelines by name, compiled at first use.
pub(super) struct Pipelines {
    metal: MetalDevice,
    libraries: Mutex<HashMap<&'static str, Compiled>>,
    pipelines: Mutex<HashMap<&'static str, ComputePipeline>>,
}

impl std::fmt::Debug for Pipelines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipelines").field("pipelines", &self.pipelines.lock().len()).finish()
    }
}

impl Pipelines {
    pub(super) fn new(metal: &MetalDevice) -> Self {
        Self { metal: metal.clone(), libraries: Mutex::default(), pipelines: Mutex::default() }
    }

    /// The kernel of a library.
    pub(super) fn get(
        &self,
        library: &'static Library,
        kernel: &'static str,
    ) -> Result<ComputePipeline, Error> {
        if let Some(known) = self.pipelines.lock().get(kernel) {
            return Ok(known.clone());
        }
        let failed =
            |source| Error::Kernel { kernel, library: library.name(), source: Box::new(source) };
        let compiled = self.library(library).map_err(failed)?;
        let made = compiled
            .get_function(kernel, None)
            .and_then(|f| self.metal.device().new_compute_pipeline_state_with_function(&f))
            .map_err(failed)?;
        self.pipelines.lock().insert(kernel, made.clone());
        Ok(made)
    }

    fn library(&self, library: &'static Library) -> Result<Compiled, MetalKernelError> {
        let mut libraries = self.libraries.lock();
        if let Some(known) = libraries.get(library.name()) {
            return Ok(known.clone());
        }
        let options = MTLCompileOptions::new();
        // The oldest with bfloat; and the kernels tell numbers from NaN.
        options.setLanguageVersion(MTLLanguageVersion::Version3_1);
        options.setMathMode(MTLMathMode::Safe);
        let source = library.source();
        let made = self.metal.device().new_library_with_source(&source, Some(&options))?;
        libraries.insert(library.name(), made.clone());
        Ok(made)
    }
}
