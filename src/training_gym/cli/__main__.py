"""`python -m training_gym.cli`, where the script is not on the path."""

from training_gym.cli import main

main()
