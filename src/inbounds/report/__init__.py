"""What people look at: tables in the terminal and pictures. Needs the extra inbounds[lab]."""
