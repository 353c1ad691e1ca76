"""What the upstreams offer: tools, prompts, resources and templates, their names and their listings."""
