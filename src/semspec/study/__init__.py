"""Studies: what the labels, predictors and amounts of data at hand are worth, measured on a project's own samples.

`semspec study NAME` reads what the stages have left and writes results/studies/NAME.{json,md,png}. No model runs and no
stage's output changes.
"""
