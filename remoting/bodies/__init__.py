"""Bodies of requests and answers, JSON as fastjson writes it: typed, by theme; registry has the public names of all."""
