"""An entry of launches: its calls as the steps of a plan, and several launches as one."""
