"""What is drawn for each seed; `every`: from that many seeds one."""

import metrics
import models
import schedules
import images
import noise
import directories

PARTS = [
    models.Model,
    metrics.Metrics,
    schedules.Schedules,
    images.Resize,
    images.Augment,
    directories.Directory,
    noise.Noise,
]
