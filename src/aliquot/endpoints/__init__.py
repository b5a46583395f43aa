"""How requests come in: thin translations between a caller's words and the control plane."""
