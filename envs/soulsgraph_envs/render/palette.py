"""The colours of a fight's picture."""

from __future__ import annotations

Colour = tuple[int, int, int]

ABYSS: Colour = (14, 14, 18)
FLOOR: Colour = (70, 66, 60)
TILE: Colour = (78, 74, 67)
EDGE: Colour = (120, 110, 90)
PLAYER: Colour = (70, 130, 220)
BOSS: Colour = (150, 70, 60)
WIND_UP: Colour = (255, 170, 40)
STRIKE: Colour = (255, 40, 20)
LOCK: Colour = (240, 230, 150)
SAFE: Colour = (110, 240, 255)
VIEW: Colour = (200, 210, 255)
HP: Colour = (200, 40, 40)
STAMINA: Colour = (60, 170, 70)
FLASK: Colour = (240, 160, 40)
STATUS: Colour = (170, 200, 235)
HEAL: Colour = (120, 230, 120)
LOST: Colour = (255, 90, 70)
LANDED: Colour = (255, 255, 255)
EMPTY: Colour = (35, 30, 30)
COURSE: Colour = (190, 190, 198)
NOSE: Colour = (225, 225, 225)
PLAYER_HEAD: Colour = (190, 205, 230)
BOSS_HEAD: Colour = (205, 150, 130)
STEEL: Colour = (215, 220, 228)
HALBERD: Colour = (168, 150, 120)
SHIELD: Colour = (120, 105, 80)
PANEL: Colour = (24, 24, 30)
TEXT: Colour = (232, 232, 232)
FAINT: Colour = (150, 150, 158)
DIED: Colour = (190, 30, 30)
WON: Colour = (235, 195, 90)

#: How much of a colour is seen, of 255: an open area, one to come, what the camera sees.
STRIKE_ALPHA, WIND_UP_ALPHA, VIEW_ALPHA = 150, 70, 22


def animation_colour(animation: int) -> Colour:
    """Return a distinct hue for an id: golden-ratio steps around the circle keep neighbours apart."""
    hue = 6.0 * (animation * 0.6180339887 % 1.0)
    red, green, blue = (min(max(abs((hue + shift) % 6.0 - 3.0) - 1.0, 0.0), 1.0) for shift in (0.0, 4.0, 2.0))
    return int(80 + 175 * red), int(80 + 175 * green), int(80 + 175 * blue)
