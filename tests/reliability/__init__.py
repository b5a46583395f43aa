"""What the reliability tests share: servers as processes, a scheduler that calls them, load, and a verdict."""
