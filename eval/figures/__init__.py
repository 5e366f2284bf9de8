"""One file per figure; `style` holds what they share (palette, fonts, byte-stable saving)."""
