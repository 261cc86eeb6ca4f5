"""Economy of suggestions: keys that they save, and wrong ones that they show, while functions are typed again."""
