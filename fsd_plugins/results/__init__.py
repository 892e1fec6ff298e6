"""Result files of other tools as imported runs, beside those that were measured here."""
