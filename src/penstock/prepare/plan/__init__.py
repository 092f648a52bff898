"""What will be done: passes, their settings and projections -> Plan."""
