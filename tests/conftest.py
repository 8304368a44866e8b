import jax

# Accuracy is asserted in float64; tests of float32 ask for it by name. Promotion is never silent.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Nearly all of the time is compilation; without XLA's expensive passes it takes half. Examples run with them.
jax.config.update("jax_disable_most_optimizations", True)
