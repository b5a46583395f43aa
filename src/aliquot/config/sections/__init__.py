"""The declared keys of server and agent, by subject. Each section is for one component; nothing else may enter."""
