"""What the plots of the benchmarks share: small, and legible on white and on black. Needs matplotlib."""
import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

# Okabe and Ito's colours that keep their contrast on white and on black; grey for text and lines.
GREY = "#808080"
BLUE, ORANGE, GREEN, PURPLE = "#3d8fd1", "#d97706", "#189e76", "#b871a8"

plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "nodewright", "font.family": "sans-serif"})


def dress(axes, title, x_label):
    axes.set_title(title, fontsize=9, color=GREY)
    axes.set_xlabel(x_label, fontsize=8, color=GREY)
    axes.grid(True, which="major", color=GREY, alpha=0.3, linewidth=0.5)
    axes.tick_params(colors=GREY, labelsize=8, which="both")
    for side in axes.spines.values():
        side.set_color(GREY)


def save(figure, path, axes):
    """With the legend of `axes` below."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), fontsize=8, frameon=False, labelcolor=GREY)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)
