"""The fields of requests and answers, typed, by theme; registry knows the header of each code."""
