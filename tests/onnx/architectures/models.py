"""Architectures of transformers, made small: which class, which sizes, which inputs.

A row is one architecture with random weights of a fixed seed; `export.py` makes files of it. To add
one: a line here. Sizes are those of the configuration class under its own names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

VOCABULARY = 61

BLOCKS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 48, "vocab_size": VOCABULARY, "max_position_embeddings": 64}
GROUPED = BLOCKS | {"num_key_value_heads": 2, "head_dim": 8}
NAMED_BY_N = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
              "vocab_size": VOCABULARY}
BY_D_MODEL = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
              "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
              "decoder_ffn_dim": 48, "vocab_size": VOCABULARY, "max_position_embeddings": 64}
PATCHES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
           "intermediate_size": 48, "image_size": 32, "patch_size": 8}
STAGES = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32],
          "num_attention_heads": [1, 2, 2, 4]}
PYRAMID = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]}
WAVES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 48, "conv_dim": [16, 16], "conv_kernel": [10, 3],
         "conv_stride": [5, 2], "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
         "num_feat_extract_layers": 2, "vocab_size": VOCABULARY}


@dataclasses.dataclass(frozen=True)
class Row:
    """An architecture."""

    name: str
    model: str  # class of transformers; its configuration class is `config`
    config: str
    sizes: Mapping[str, object]
    inputs: str  # a key of `export.INPUTS`
    most: int = 0  # largest height and width of images; 0: `export.IMAGE`


def text(name: str, prefix: str, sizes: Mapping[str, object] = BLOCKS, model: str = "Model",
         inputs: str = "tokens") -> Row:
    """An encoder or a decoder of tokens."""
    return Row(name, prefix + model, prefix + "Config", sizes, inputs)


def causal(name: str, prefix: str, sizes: Mapping[str, object] = GROUPED) -> Row:
    """A decoder with its head."""
    return Row(name, prefix + "ForCausalLM", prefix + "Config", sizes, "tokens")


def image(name: str, prefix: str, sizes: Mapping[str, object], model: str = "Model",
          inputs: str = "image") -> Row:
    """A model of images of any size, or with ``inputs="square"`` of one."""
    return Row(name, prefix + model, prefix + "Config", sizes, inputs)


ROWS = [
    # Encoders of text.
    text("bert", "Bert"),
    text("bert-classes", "Bert", model="ForSequenceClassification"),
    text("roberta", "Roberta", BLOCKS | {"pad_token_id": 1}),
    text("xlm-roberta", "XLMRoberta", BLOCKS | {"pad_token_id": 1}),
    text("camembert", "Camembert", BLOCKS | {"pad_token_id": 1}),
    text("albert", "Albert", BLOCKS | {"embedding_size": 16}),
    text("distilbert", "DistilBert", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
                                      "vocab_size": VOCABULARY, "max_position_embeddings": 64}),
    text("electra", "Electra", BLOCKS | {"embedding_size": 16}),
    text("mobilebert", "MobileBert", BLOCKS | {"embedding_size": 32, "intra_bottleneck_size": 32,
                                               "true_hidden_size": 32}),
    text("mpnet", "MPNet"),
    text("deberta", "Deberta", BLOCKS | {"relative_attention": True,
                                         "pos_att_type": ["c2p", "p2c"]}),
    text("deberta-v2", "DebertaV2", BLOCKS | {"relative_attention": True, "position_buckets": 8,
                                              "pos_att_type": ["c2p", "p2c"],
                                              "share_att_key": True}),
    text("convbert", "ConvBert", BLOCKS | {"embedding_size": 32, "head_ratio": 2,
                                           "conv_kernel_size": 3}),
    text("squeezebert", "SqueezeBert", BLOCKS | {"embedding_size": 32}),
    text("rembert", "RemBert", BLOCKS | {"input_embedding_size": 16, "output_embedding_size": 16}),
    text("nystromformer", "Nystromformer", BLOCKS | {"num_landmarks": 4, "segment_means_seq_len": 4,
                                                     "conv_kernel_size": 5}),
    text("layoutlm", "LayoutLM"),
    text("megatron-bert", "MegatronBert"),
    text("roformer", "RoFormer", BLOCKS | {"embedding_size": 32}),
    text("esm", "Esm", BLOCKS | {"pad_token_id": 1, "mask_token_id": 4,
                                 "position_embedding_type": "rotary"}),
    text("ernie", "Ernie"),
    text("data2vec-text", "Data2VecText", BLOCKS | {"pad_token_id": 1}),
    text("modernbert", "ModernBert", BLOCKS | {"pad_token_id": 0, "local_attention": 8}),
    text("fnet", "FNet", BLOCKS, inputs="bare tokens"),
    text("funnel", "Funnel", {"block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8,
                              "d_inner": 48, "vocab_size": VOCABULARY}),
    text("bigbird", "BigBird", BLOCKS | {"attention_type": "original_full"}),
    # Decoders of text.
    text("gpt2", "GPT2", NAMED_BY_N, "LMHeadModel"),
    causal("gpt-neo", "GPTNeo", {"hidden_size": 32, "num_layers": 2, "num_heads": 4,
                                 "attention_types": [[["global", "local"], 1]], "window_size": 8,
                                 "intermediate_size": 48, "vocab_size": VOCABULARY,
                                 "max_position_embeddings": 64}),
    causal("gpt-neox", "GPTNeoX", BLOCKS),
    causal("gptj", "GPTJ", NAMED_BY_N | {"rotary_dim": 4}),
    causal("codegen", "CodeGen", NAMED_BY_N | {"rotary_dim": 4}),
    causal("opt", "OPT", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                          "ffn_dim": 48, "vocab_size": VOCABULARY, "max_position_embeddings": 64,
                          "word_embed_proj_dim": 32}),
    causal("bloom", "Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4,
                              "vocab_size": VOCABULARY}),
    causal("mpt", "Mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64,
                          "vocab_size": VOCABULARY}),
    causal("llama", "Llama"),
    causal("mistral", "Mistral", GROUPED | {"sliding_window": 8}),
    causal("qwen2", "Qwen2"),
    causal("qwen3", "Qwen3"),
    causal("gemma", "Gemma"),
    causal("gemma2", "Gemma2", GROUPED | {"sliding_window": 8, "query_pre_attn_scalar": 8}),
    causal("phi", "Phi", BLOCKS | {"num_key_value_heads": 2}),
    causal("phi3", "Phi3", GROUPED | {"pad_token_id": 0}),
    causal("falcon", "Falcon", {"hidden_size": 32, "num_hidden_layers": 2,
                                "num_attention_heads": 4, "vocab_size": VOCABULARY}),
    causal("stablelm", "StableLm", BLOCKS | {"num_key_value_heads": 2}),
    causal("starcoder2", "Starcoder2", BLOCKS | {"num_key_value_heads": 2}),
    causal("olmo", "Olmo", BLOCKS | {"num_key_value_heads": 2}),
    causal("olmo2", "Olmo2", BLOCKS | {"num_key_value_heads": 2}),
    causal("cohere", "Cohere", BLOCKS | {"num_key_value_heads": 2}),
    causal("granite", "Granite", BLOCKS | {"num_key_value_heads": 2}),
    causal("smollm3", "SmolLM3", GROUPED | {"pad_token_id": 0, "bos_token_id": 1,
                                            "eos_token_id": 2}),
    causal("biogpt", "BioGpt", BLOCKS),
    causal("xglm", "XGLM", {"d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4,
                            "vocab_size": VOCABULARY, "max_position_embeddings": 64}),
    causal("persimmon", "Persimmon", BLOCKS),
    causal("mixtral", "Mixtral", GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    causal("mamba", "Mamba", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4,
                              "vocab_size": VOCABULARY}),
    # From text to text.
    text("t5", "T5", {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
                      "vocab_size": VOCABULARY}, inputs="two texts"),
    text("bart", "Bart", BY_D_MODEL, inputs="two texts"),
    text("mbart", "MBart", BY_D_MODEL, inputs="two texts"),
    text("marian", "Marian", BY_D_MODEL | {"pad_token_id": 0, "decoder_start_token_id": 1},
         inputs="two texts"),
    text("pegasus", "Pegasus", BY_D_MODEL, inputs="two texts"),
    text("m2m-100", "M2M100", BY_D_MODEL, inputs="two texts"),
    # Images.
    image("segformer", "Segformer", STAGES | {"decoder_hidden_size": 16, "num_labels": 5},
          "ForSemanticSegmentation"),
    image("pvt", "Pvt", STAGES | {"image_size": 64}, inputs="square"),
    image("pvt-v2", "PvtV2", STAGES),
    image("glpn", "GLPN", STAGES | {"decoder_hidden_size": 16}, "ForDepthEstimation",
          inputs="image of 32s"),
    image("vit", "ViT", PATCHES, inputs="square"),
    image("deit", "DeiT", PATCHES, inputs="square"),
    image("dinov2", "Dinov2", PATCHES, inputs="square"),
    image("swin", "Swin", {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2],
                           "num_heads": [2, 4], "window_size": 4}, inputs="square"),
    image("swinv2", "Swinv2", {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2],
                               "num_heads": [2, 4], "window_size": 4}, inputs="square"),
    image("hiera", "Hiera", {"image_size": [32, 32], "patch_size": [7, 7], "embed_dim": 8,
                             "depths": [1, 1], "num_heads": [1, 2],
                             "masked_unit_size": [4, 4], "num_query_pool": 1}, inputs="square"),
    image("convnext", "ConvNext", PYRAMID),
    image("convnextv2", "ConvNextV2", PYRAMID),
    image("resnet", "ResNet", PYRAMID | {"embedding_size": 8}),
    image("regnet", "RegNet", PYRAMID | {"embedding_size": 8, "groups_width": 8}),
    image("bit", "Bit", PYRAMID | {"embedding_size": 8, "num_groups": 4}),
    image("poolformer", "PoolFormer", PYRAMID),
    image("mobilenet-v1", "MobileNetV1", {"depth_multiplier": 0.25}),
    image("mobilenet-v2", "MobileNetV2", {"depth_multiplier": 0.25}),
    image("mobilevit", "MobileViT", {
        "image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": 4,
        "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32]}),
    image("focalnet", "FocalNet", {"image_size": 32, "patch_size": 2, "embed_dim": 8,
                                   "depths": [1, 1], "focal_levels": [2, 2],
                                   "focal_windows": [3, 3]}, inputs="square"),
    image("cvt", "Cvt", {"embed_dim": [8, 16, 24], "num_heads": [1, 2, 3], "depth": [1, 2, 3]}),
    image("levit", "Levit", {
        "image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 3, 4],
        "depths": [1, 1, 1], "key_dim": [8, 8, 8]}, inputs="square"),
    image("textnet", "TextNet", {}, inputs="image"),
    image("upernet", "UperNet", {"hidden_size": 16, "num_labels": 5, "pool_scales": [1, 2]},
          "ForSemanticSegmentation", inputs="square"),
    # Sound.
    Row("wav2vec2", "Wav2Vec2Model", "Wav2Vec2Config", WAVES, "wave"),
    Row("hubert", "HubertModel", "HubertConfig", WAVES, "wave"),
    Row("wavlm", "WavLMModel", "WavLMConfig", WAVES, "wave"),
    Row("whisper", "WhisperModel", "WhisperConfig", BY_D_MODEL | {
        "max_source_positions": 20, "max_target_positions": 16, "num_mel_bins": 8,
        "pad_token_id": 0, "decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2},
        "sound and text"),
    Row("audio-spectrogram", "ASTModel", "ASTConfig", {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_length": 40, "num_mel_bins": 32}, "spectrogram"),
    # Text and images.
    Row("clip", "CLIPModel", "CLIPConfig", {
        "text_config": BLOCKS | {"eos_token_id": 2}, "vision_config": PATCHES,
        "projection_dim": 16}, "text and image"),
    Row("siglip", "SiglipModel", "SiglipConfig", {
        "text_config": BLOCKS, "vision_config": PATCHES}, "text and image"),
]
