// The 32-bit words of a record and of a slot's parameters (kernels/step.go).
#pragma once

constexpr int MAX_TOP = 20; // alternatives of a record
constexpr int RESULT_WORDS = 8 + 2 * MAX_TOP, SAMPLE_PARAMS = 14;
