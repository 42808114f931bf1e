"""Code that handlers of MLflow's protocol share, with each other and with those of other subjects."""
