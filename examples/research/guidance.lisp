; A diffusion model's steps from noise to points, led by a class ("Classifier-Free Diffusion Guidance", Ho and Salimans 2022;
; "Denoising Diffusion Implicit Models", Song et al. 2021): all steps are one entry's loop.
(require nn arrays kernels)
(config size 2  width 16  classes 4  steps 8  strength 1.5)
(weights (in-w [width size]) (time-w [width 8]) (class-w [(+ classes 1) width]) (mid-w [width width]) (mid-b [width])
  (out-w [size width]))

(defn noise-of [x t class]
  (let [waves (tensor [b (dim x 0) k 8] (sin (* t (+ 1.0 (cast (cast k i32) f32)))))
        h (silu (+ (+ (matmul-transposed x in-w) (matmul-transposed waves time-w)) (rows class-w class)))]
    (matmul-transposed (silu (linear h mid-w mid-b)) out-w)))

; the last class is none; its noise is what the asked one's is led away from
(entry sample [(noise [batch size] f32) (class [batch] i32)] {:shapes [{batch 5}]}
  (let [n (dim noise 0)
        both (join [class (tensor [b n] (: classes i32))] 0)
        x (over [k 0 steps 1] [x noise]
            (let [t (* (/ 1.5 (* 1.0 steps)) (- (* 1.0 steps) (cast (cast k i32) f32)))
                  after (- t (/ 1.5 (* 1.0 steps)))
                  led (noise-of (join [x x] 0) t both)
                  [asked none] (split led [n n] 0)
                  said (+ asked (* strength (- asked none)))
                  clean (/ (- x (* (sin t) said)) (cos t))]
              (+ (* (cos after) clean) (* (sin after) said))))]
    {:points x}))
