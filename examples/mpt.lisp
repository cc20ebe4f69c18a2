; MPT of MosaicML, 2023: a GPT-2 without biases, with linear biases in place of positions.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 50368  context 2048  layers 24  heads 16  width 2048  epsilon 1e-5  tied-head true  most 0.0
        weight-type bf16
        cache-type (usual-cache-type weight-type))

(hugging-face ["mpt"] {:prefix "transformer."
                       :requires {"attn_config.alibi" true  "attn_config.alibi_bias_max" 8  "attn_config.qk_ln" false
                                  "attn_config.attn_type" "multihead_attention"  "attn_config.prefix_lm" false
                                  "attn_config.softmax_scale" nil  "logit_scale" nil  "no_bias" true}}
  (config vocab "vocab_size"  context (optional "max_seq_len")  layers "n_layers"  heads "n_heads"  width "d_model"
          epsilon (optional "layer_norm_epsilon")  tied-head (optional "tie_word_embeddings")
          most (optional "attn_config.clip_qkv"))
  (weights
    wte "wte.weight"  lnf-w "norm_f.weight"  head-w "lm_head.weight"
    (per "blocks.*."
      ln1-w "norm_1.weight"  ln2-w "norm_2.weight"  qkv-w "attn.Wqkv.weight"  proj-w "attn.out_proj.weight"
      fc-w "ffn.up_proj.weight"  out-w "ffn.down_proj.weight")))
(gguf ["mpt"])

(weights
  (wte [vocab width] weight-type)
  (per layers
    (ln1-w [width] {:init 1})  (ln2-w [width] {:init 1})
    (qkv-w [(* 3 width) width] weight-type)  (proj-w [width width] weight-type)
    (fc-w [(* 4 width) width] weight-type)   (out-w [width (* 4 width)] weight-type))
  (lnf-w [width] {:init 1})
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 heads context (quot width heads)] cache-type))

(defn layer [x l]
  (let [qkv (clipped (linear (centred-norm x epsilon (ln1-w l)) (qkv-w l)) most)
        x (+ x (linear (attention qkv (kv l) heads (lowered-by (alibi-slope heads))) (proj-w l)))]
    (+ x (linear (gelu-exact (linear (centred-norm x epsilon (ln2-w l)) (fc-w l))) (out-w l)))))

(entry logits [tokens positions]
  (let [x (fold layer (rows wte tokens) (range layers))]
    (matmul-transposed (centred-norm (last x) epsilon lnf-w) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
