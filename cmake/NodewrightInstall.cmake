# cmake --install: bin/nodewright, lib/nodewright/ with the shared libraries it opens, share/nodewright/models/demo.
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
        FILES_MATCHING PATTERN "*.json" PATTERN "*.safetensors" PATTERN "README.md")
