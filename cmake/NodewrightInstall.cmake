# cmake --install, first the program: bin/nodewright, lib/nodewright/ with the shared libraries it opens, share/nodewright/models/demo.
# These folders are fixed, since the program looks for them relative to itself.
if(TARGET nodewright)
  add_dependencies(nodewright nodewright_carried_libraries)
  install(TARGETS nodewright RUNTIME DESTINATION bin)
endif()
if(TARGET nodewright_cpu_driver)
  install(TARGETS nodewright_cpu_driver LIBRARY DESTINATION lib/nodewright)
endif()
install(FILES ${NODEWRIGHT_CARRIED_LIBRARIES} DESTINATION lib/nodewright)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/demo/ DESTINATION share/nodewright/models/demo
        FILES_MATCHING PATTERN "*.json" PATTERN "*.jinja" PATTERN "*.safetensors" PATTERN "README.md")

# The graph library: find_package(nodewright) gives nodewright::graph. Headers as the sources include one another, below
# include/nodewright; the public ones are those that <nodewright/nodewright.h> reaches (tests/package checks it).
include(CMakePackageConfigHelpers)
install(TARGETS nodewright_graph nodewright_runtime nodewright_kernel_sources nodewright_fmt nodewright_cuda_headers
        EXPORT nodewright ARCHIVE DESTINATION lib)
set(public_headers
  graph/bucket_set.h
  graph/buffer_watch.h
  graph/captured_run.h
  graph/eager_run.h
  graph/edge_derivation.h
  graph/exec_budget.h
  graph/graph_builder.h
  graph/graph_dump.h
  graph/graph_exec.h
  graph/graph_handle.h
  graph/graph_reserve.h
  graph/hazard_check.h
  graph/hazard_tracker.h
  graph/host_call.h
  graph/launch_arguments.h
  graph/library_nodes.h
  graph/name_table.h
  graph/node.h
  graph/node_timer.h
  graph/patch.h
  graph/plan_timings.h
  graph/plan_run.h
  graph/product_operands.h
  graph/timed_twin.h
  graph/timing_trace.h
  graph/uses.h
  kernels_src/args.h
  kernels_src/block_stamps.h
  kernels_src/field_visit.h
  kernels_src/kernel_sources.h
  kernels_src/launch_shape.h
  kernels_src/reference_product.h
  kernels_src/saxpy.h
  runtime/content_hash.h
  runtime/context_guard.h
  runtime/cuda_library_places.h
  runtime/cuda_symbol.h
  runtime/device.h
  runtime/device_selection.h
  runtime/driver.h
  runtime/driver_entries.h
  runtime/error.h
  runtime/event.h
  runtime/foreign_kernel.h
  runtime/host_heap.h
  runtime/host_stand_in.h
  runtime/image_store.h
  runtime/inline_kernel.h
  runtime/interposer.h
  runtime/kernel_cache.h
  runtime/kernel_request.h
  runtime/live_buffers.h
  runtime/matmul_library.h
  runtime/matmul_plan.h
  runtime/memory.h
  runtime/parameter_layout.h
  runtime/stream.h)
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION include/nodewright/${folder})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/include/nodewright/nodewright.h
              ${PROJECT_BINARY_DIR}/include/nodewright/version.h DESTINATION include/nodewright/nodewright)
install(EXPORT nodewright NAMESPACE nodewright:: FILE nodewrightTargets.cmake DESTINATION lib/cmake/nodewright)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/nodewrightConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/nodewrightConfig.cmake INSTALL_DESTINATION lib/cmake/nodewright)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/nodewrightConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nodewrightConfig.cmake ${PROJECT_BINARY_DIR}/nodewrightConfigVersion.cmake
        DESTINATION lib/cmake/nodewright)
