"""Messages in and out: sends, pulls, long polls, delays, retries, and what is checked of each."""
