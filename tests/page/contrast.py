# Finds texts of a page that are too pale to read, in a browser.

# Texts whose colour has less than 4.5 to 1 (WCAG AA) against the first ground below them that is not transparent.
PALE = """() => {
    const parts = text => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = element => {
        for (let one = element; one; one = one.parentElement) {
            const colour = parts(getComputedStyle(one).backgroundColor);
            if (colour[3] !== 0) return colour;
        }
        return [255, 255, 255];
    };
    const texts = [...document.querySelectorAll('body *')].filter(one => one.checkVisibility() && !one.disabled && !one.closest('svg, noscript, script, style') &&
        [...one.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim()));
    const found = texts.map(one => {
        const pair = [light(parts(getComputedStyle(one).color)), light(ground(one))].sort((a, b) => b - a);
        return [(pair[0] + 0.05) / (pair[1] + 0.05), one];
    });
    return found.filter(([contrast]) => contrast < 4.5).map(([contrast, one]) => `${contrast.toFixed(2)} ${one.textContent.trim().slice(0, 30)}`);
}"""
