"""A small Keras network on scikit-learn's 8x8 handwritten digits, the same on Keras's TensorFlow and torch back ends."""

import keras
from sklearn.datasets import load_digits

from tenuto.keras import KerasTrial

VALIDATION_EVERY = 5
"""Each fifth image is kept for validation."""


def digits(validation):
    images, labels = load_digits(return_X_y=True)
    chosen = [index for index in range(len(images)) if (index % VALIDATION_EVERY == 0) == validation]
    return images[chosen].reshape(-1, 8, 8, 1).astype("float32") / 16, labels[chosen]


class Digits(KerasTrial):
    def build_model(self):
        hparam = self.context.get_hparam
        model = keras.Sequential(
            [
                keras.layers.Input((8, 8, 1)),
                keras.layers.RandomTranslation(0.1, 0.1),
                keras.layers.Conv2D(hparam("channels"), 3, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dropout(hparam("dropout")),
                keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.Adam(hparam("learning_rate")),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return model

    def build_training_data(self):
        images, labels = digits(validation=False)
        if keras.backend.backend() != "tensorflow":
            return images, labels  # cut into batches and shuffled here
        import tensorflow as tf

        records = tf.data.Dataset.from_tensor_slices((images, labels))
        return records.shuffle(len(images)).batch(self.context.batch_size).prefetch(2)

    def build_validation_data(self):
        return digits(validation=True)

    def build_callbacks(self):
        return [keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=2)]
