"""The Trio engine: runs the scheduler's decisions in nurseries and capacity limiters."""
