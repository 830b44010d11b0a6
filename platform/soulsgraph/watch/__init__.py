"""Watch an agent fight: who plays, one fight recorded tick by tick, drawn with each skill's mind, shown or saved."""
